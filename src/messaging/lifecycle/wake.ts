/** A pause that can be ended from outside. */
import type { Clock } from './clock.ts'

/**
 * Lets a loop sleep until something happens. A wake during work is remembered:
 * the next pause ends at once, so that nothing that arrived meanwhile waits.
 */
export class Wake {
  #pending = false
  #current: AbortController | null = null
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Ends the pause in progress, or the next one. */
  wake(): void {
    this.#pending = true
    this.#current?.abort()
  }

  /** Resolves after `ms`, on a wake, or when `signal` aborts. */
  async within(ms: number, signal: AbortSignal): Promise<void> {
    if (!this.#pending && !signal.aborted) {
      const current = new AbortController()
      this.#current = current
      const end = () => {
        current.abort()
      }
      signal.addEventListener('abort', end, { once: true })
      await this.#clock.pause(ms, current.signal)
      signal.removeEventListener('abort', end)
      this.#current = null
    }
    this.#pending = false
  }
}
