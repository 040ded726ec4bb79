/**
 * Time and chance of a simulation: hours pass in seconds, and a seed gives the
 * same run again.
 *
 * Time stands still while anything can still go on, and then jumps to the next
 * timer. Nothing that is simulated may wait for real time.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { Clock } from '../../../src/messaging/lifecycle/clock.ts'
import { seededRandom } from '../seeded-random.ts'

interface Timer {
  readonly at: number
  readonly fire: () => void
}

export class VirtualTime implements Clock {
  readonly random: () => number
  #now = 0
  #timers: Timer[] = []

  constructor(seed: number) {
    this.random = seededRandom(seed)
  }

  now(): number {
    return this.#now
  }

  async pause(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const fire = () => resolve()
    const timer = { at: this.#now + Math.max(0, ms), fire }
    this.#add(timer)
    signal?.addEventListener('abort', fire, { once: true })
    await promise
    signal?.removeEventListener('abort', fire)
    if (signal?.aborted) this.#timers = this.#timers.filter((each) => each !== timer)
  }

  /** Lets time pass until `done` says so; resolves to whether it did within `ms`. */
  async passUntil(done: () => boolean, ms: number): Promise<boolean> {
    const end = this.#now + ms
    for (;;) {
      await settle()
      if (done()) return true
      const next = this.#timers[0]
      if (next === undefined || next.at > end) {
        this.#now = end
        return done()
      }
      this.#timers.shift()
      this.#now = next.at
      next.fire()
    }
  }

  /** A whole number from `low` to `high`. */
  between(low: number, high: number): number {
    return low + Math.floor(this.random() * (high - low + 1))
  }

  chance(probability: number): boolean {
    return this.random() < probability
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.between(0, items.length - 1)]
    if (item === undefined) throw new RangeError('There is nothing to pick from')
    return item
  }

  /** Keeps timers in order of time, those of one instant in order of their making. */
  #add(timer: Timer): void {
    let low = 0
    let high = this.#timers.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#timers[middle]?.at ?? 0) <= timer.at) low = middle + 1
      else high = middle
    }
    this.#timers.splice(low, 0, timer)
  }
}

/** Until nothing goes on that does not wait for time. */
async function settle(): Promise<void> {
  await turn()
}
