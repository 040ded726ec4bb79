/**
 * For how long a worker may be certain of its leases.
 *
 * A worker that was frozen does not know that others own its lanes by now. What
 * it went on to send would be copies at best, and at worst an event that an
 * operator has skipped meanwhile. So no send begins unless the last renewal is
 * younger than a lease; one that has begun may outlast it.
 */
import type { Clock } from '../lifecycle/clock.ts'
import { isOver, type Term } from '../lifecycle/term.ts'

export class Tenure {
  readonly #clock: Clock
  readonly #waiting = new Set<() => void>()
  #term: Term = { until: Number.NEGATIVE_INFINITY, untilTime: Number.NEGATIVE_INFINITY }

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Notes a renewal, with its term from before it was asked for. What it has shown to be lost is known already. */
  renewed(term: Term): void {
    this.#term = term
    for (const wake of this.#waiting) wake()
  }

  /** Resolves once the leases are certain, or `signal` aborts. */
  async certain(signal: AbortSignal): Promise<void> {
    while (isOver(this.#term, this.#clock) && !signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>()
      const wake = () => resolve()
      this.#waiting.add(wake)
      signal.addEventListener('abort', wake, { once: true })
      await promise
      this.#waiting.delete(wake)
      signal.removeEventListener('abort', wake)
    }
  }
}
