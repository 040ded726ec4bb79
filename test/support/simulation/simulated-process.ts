/**
 * A relay process that can be killed and frozen. What it has sent before still
 * arrives, as from a real one; nothing that comes back reaches it any more, or
 * only when it goes on.
 */
import type { Clock } from '../../../src/messaging/lifecycle/clock.ts'
import type { VirtualTime } from './virtual-time.ts'

/** What becomes of one call to the database. */
export type CallFault = 'none' | 'refused' | 'answer lost'

export class SimulatedProcess {
  /** The same time, as this process sees it: while it is frozen, nothing of it ends. */
  readonly clock: Clock
  readonly #time: VirtualTime
  readonly #faultOf: () => CallFault
  readonly #latencyMs: number
  #state: 'running' | 'frozen' | 'killed' = 'running'
  #thawed = Promise.withResolvers<void>()

  /** `latencyMs` is how long a way takes at most. */
  constructor(time: VirtualTime, { faultOf, latencyMs }: { faultOf: () => CallFault; latencyMs: number }) {
    this.#time = time
    this.#faultOf = faultOf
    this.#latencyMs = latencyMs
    this.clock = {
      now: () => time.now(),
      random: time.random,
      pause: async (ms, signal) => {
        await time.pause(ms, signal)
        await this.#goesOn()
      },
    }
  }

  get running(): boolean {
    return this.#state === 'running'
  }

  kill(): void {
    this.#state = 'killed'
  }

  freeze(): void {
    if (this.#state === 'running') this.#state = 'frozen'
  }

  thaw(): void {
    if (this.#state !== 'frozen') return
    this.#state = 'running'
    this.#thawed.resolve()
    this.#thawed = Promise.withResolvers()
  }

  /** A call to a server: a way there, an effect, a way back. */
  async call<Result>(apply: () => Promise<Result>): Promise<Result> {
    await this.#goesOn()
    await this.#time.pause(this.#time.between(0, this.#latencyMs))
    const fault = this.#faultOf()
    if (fault === 'refused') {
      await this.#goesOn()
      throw connectionLost()
    }
    const result = await apply()
    await this.#time.pause(this.#time.between(0, this.#latencyMs))
    await this.#goesOn()
    if (fault === 'answer lost') throw connectionLost()
    return result
  }

  /** The same without faults of its own, for calls whose failures are decided elsewhere. */
  async pass<Result>(apply: () => Promise<Result>): Promise<Result> {
    await this.#goesOn()
    const [outcome] = await Promise.allSettled([apply()])
    await this.#goesOn()
    if (outcome.status === 'rejected') throw outcome.reason
    return outcome.value
  }

  /** All methods of `target`, called from this process. */
  over<Target extends object>(target: Target): Target {
    return new Proxy(target, {
      get: (_, name) => {
        const member: unknown = Reflect.get(target, name, target)
        if (typeof member !== 'function') return member
        return (...given: unknown[]) => this.call(async () => await member.apply(target, given))
      },
    })
  }

  async #goesOn(): Promise<void> {
    while (this.#state === 'frozen') await this.#thawed.promise
    if (this.#state === 'killed') await new Promise<never>(() => {})
  }
}

function connectionLost(): Error {
  return Object.assign(new Error('The connection is lost'), { code: '57P01' })
}
