/** A subscriber whose batches the test delivers by hand: it decides what arrives, when, and how often. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { v7 as uuidv7 } from 'uuid'
import type {
  ActiveSubscription,
  BatchOutcome,
  IncomingRecord,
  Subscriber,
  Subscription,
  SubscriptionStatus,
  TopicPartition,
} from '../../../src/messaging/transport.ts'

export const TOPIC = 'order.events'

/** A record as the relay makes it; what does not matter is made up. */
export function recordOf(
  offset: number,
  given: {
    readonly id?: string
    readonly type?: string
    readonly key?: string | null
    /** JSON text, or `null` for a tombstone. */
    readonly value?: string | null
    readonly headers?: Readonly<Record<string, string>>
  } = {},
): IncomingRecord {
  const { id = uuidv7(), type = 'OrderPlaced', key = randomUUID(), value = '{}', headers = {} } = given
  return {
    offset: BigInt(offset),
    timestamp: new Date(),
    key: key === null ? null : Buffer.from(key),
    value: value === null ? null : Buffer.from(value),
    headers: { event_id: id, event_type: type, occurred_at: new Date().toISOString(), ...headers },
  }
}

export class ScriptedSubscriber implements Subscriber {
  #subscription: Subscription | null = null
  readonly #ended = Promise.withResolvers<void>()
  readonly #positions = new Map<number, bigint>()
  readonly #inHand = new Set<Promise<BatchOutcome>>()
  heartbeats = 0
  /** How often its status was asked for. */
  looks = 0
  /** What the subscription says of itself. */
  phase: Pick<SubscriptionStatus, 'phase' | 'reason'> = { phase: 'running', reason: null }

  subscribe(subscription: Subscription): ActiveSubscription {
    this.#subscription = subscription
    const stop = async () => {
      // As a driver does: what is in hand is waited for.
      await Promise.allSettled(this.#inHand)
      this.#ended.resolve()
      await this.#ended.promise
    }
    return {
      done: this.#ended.promise,
      stop,
      [Symbol.asyncDispose]: stop,
      status: () => ({
        ...this.#looked(),
        partitions: [...this.#positions].map(([partition, nextOffset]) => ({
          topic: TOPIC,
          partition,
          nextOffset,
          endOffset: nextOffset,
        })),
      }),
    }
  }

  #looked(): Pick<SubscriptionStatus, 'phase' | 'reason'> {
    this.looks++
    return this.phase
  }

  /** The subscription ends by a failure of the client. */
  fail(error: Error): void {
    this.#ended.reject(error)
  }

  /** Begins a partition that ends at `endOffset`; by default beyond everything. */
  startOffset(where: TopicPartition, endOffset = 1_000_000n) {
    return this.#open().startOffset(where, endOffset)
  }

  /** Delivers one batch once. */
  async deliver(
    records: readonly IncomingRecord[],
    { partition = 0, signal = new AbortController().signal }: { partition?: number; signal?: AbortSignal } = {},
  ): Promise<BatchOutcome> {
    this.#positions.set(partition, records[0]?.offset ?? 0n)
    const delivered = this.#open().deliver({
      topic: TOPIC,
      partition,
      records,
      endOffset: (records.at(-1)?.offset ?? 0n) + 1n,
      signal,
      heartbeat: async () => {
        this.heartbeats++
      },
    })
    this.#inHand.add(delivered)
    const outcome = await delivered.finally(() => this.#inHand.delete(delivered))
    this.#positions.set(partition, outcome.nextOffset)
    return outcome
  }

  /** Delivers as a driver does: again from where the consumer got to, after the pause that it asks for, until all is finished. */
  async deliverAll(records: readonly IncomingRecord[], options: { partition?: number } = {}): Promise<void> {
    for (let rest = records; rest.length > 0; ) {
      const { nextOffset, pauseMs } = await this.deliver(rest, options)
      rest = rest.filter(({ offset }) => offset >= nextOffset)
      if (rest.length > 0) await sleep(pauseMs)
    }
  }

  #open(): Subscription {
    if (!this.#subscription) throw new Error('Nobody has subscribed')
    return this.#subscription
  }
}
