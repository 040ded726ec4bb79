/**
 * Lets a subscription be one member of its group at a time.
 *
 * kafkajs fetches from each broker by itself, and each fetch that finds its
 * metadata stale joins the group anew. Of several joins at once the coordinator
 * answers the last; those without an id become members of their own. So joins
 * and syncs that overlap are one. And an id whose join came to nothing, since its
 * connection died while the group was being dealt, is a member all the same: the
 * group waits for it until its session is over, again and again after a network
 * that was away. So whatever joins takes the ids before out of the group.
 */
import type { BrokerInside, ClusterInside, JoinInside } from './inside.ts'
import type { RequestWatch } from './mend.ts'

const JOIN_GROUP = 11

/** The ids that a subscription was given and has not left, over all of its memberships. */
export class MemberIds {
  readonly #ids = new Set<string>()

  /** Hears of the ids in the answers of a cluster that is mended with it. */
  get watch(): RequestWatch {
    return {
      admit: () => {},
      sent: (apiKey, answer) => {
        if (apiKey === JOIN_GROUP) answer.then(this.#note, this.#note)
      },
    }
  }

  /** Makes the joins of `cluster` one at a time, each after the ids before it have left. */
  guard(cluster: ClusterInside): void {
    const find = cluster.findGroupCoordinator.bind(cluster)
    const [joins, syncs] = [new Shared(), new Shared()]
    cluster.findGroupCoordinator = async (group) => {
      const coordinator = await find(group)
      return withOwn(coordinator, {
        joinGroup: (request) => joins.run(() => this.#join(coordinator, request)),
        syncGroup: (request) => syncs.run(() => coordinator.syncGroup(request)),
      })
    }
  }

  async #join(coordinator: BrokerInside, request: JoinInside): Promise<unknown> {
    const { groupId } = request
    const stale = [...this.#ids].filter((memberId) => memberId !== request.memberId)
    await Promise.allSettled(stale.map((memberId) => coordinator.leaveGroup({ groupId, memberId })))
    for (const memberId of stale) this.#ids.delete(memberId)
    return await coordinator.joinGroup(request)
  }

  /** An answer has the id, and so has the refusal that demands to join with it. */
  readonly #note = (answer: unknown): void => {
    const { memberId } = (answer ?? {}) as { readonly memberId?: unknown }
    if (typeof memberId === 'string' && memberId !== '') this.#ids.add(memberId)
  }
}

/** Calls that overlap share the first one's outcome. */
class Shared {
  #running: Promise<unknown> | null = null

  async run(call: () => Promise<unknown>): Promise<unknown> {
    this.#running ??= call().finally(() => {
      this.#running = null
    })
    return await this.#running
  }
}

/** `broker` with some methods replaced, for whoever gets it from here. */
function withOwn(broker: BrokerInside, own: Pick<BrokerInside, 'joinGroup' | 'syncGroup'>): BrokerInside {
  return new Proxy(broker, {
    get(target, name) {
      if (Object.hasOwn(own, name)) return Reflect.get(own, name)
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
