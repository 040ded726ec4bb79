/**
 * Follows a worker's calls to the database: knows for how long the oldest has
 * not been answered, and lets nobody wait for it once the worker is cancelled.
 *
 * A call that hangs, behind a lock or on a dead path, fails nothing by itself:
 * without this a worker would look well and publish nothing.
 */
import type { Clock } from './clock.ts'

/** Milliseconds without an answer after which readiness says so. */
const TELL_MS = 5_000

export class CallWatch {
  readonly #clock: Clock
  readonly #cancelled: AbortSignal
  readonly #startedAt = new Set<{ readonly at: number }>()

  constructor({ clock, cancelled }: { clock: Clock; cancelled: AbortSignal }) {
    this.#clock = clock
    this.#cancelled = cancelled
  }

  /** What is wrong, as a sentence; `null` when every call is answered in time. */
  get problem(): string | null {
    // In the order in which they began.
    const [oldest] = this.#startedAt
    const waitedMs = oldest === undefined ? 0 : this.#clock.now() - oldest.at
    return waitedMs <= TELL_MS ? null : `The database has not answered the relay for ${Math.round(waitedMs / 1000)} s`
  }

  /** `target`, with every method followed. A method's promise rejects on cancellation, whatever becomes of the call. */
  over<Target extends object>(target: Target): Target {
    return new Proxy(target, {
      get: (object, name) => {
        const method: unknown = Reflect.get(object, name)
        if (typeof method !== 'function') return method
        return (...given: unknown[]) => this.#follow(async () => Reflect.apply(method, object, given))
      },
    })
  }

  async #follow(call: () => Promise<unknown>): Promise<unknown> {
    const started = { at: this.#clock.now() }
    this.#startedAt.add(started)
    try {
      return await unlessAborted(call(), this.#cancelled)
    } finally {
      this.#startedAt.delete(started)
    }
  }
}

/** Settles as `promise` does, or rejects as soon as `signal` aborts. */
export async function unlessAborted<Result>(promise: Promise<Result>, signal: AbortSignal): Promise<Result> {
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const giveUp = () => reject(new Error('It was not waited for any longer'))
  if (signal.aborted) giveUp()
  signal.addEventListener('abort', giveUp, { once: true })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
}

/** Settles as `promise` does, or resolves after `ms` without waiting any longer. Leaves no timer behind. */
export async function within(promise: Promise<unknown>, ms: number, clock: Clock): Promise<void> {
  const settled = new AbortController()
  const ended = promise.finally(() => settled.abort())
  await Promise.race([ended, clock.pause(ms, settled.signal)])
}
