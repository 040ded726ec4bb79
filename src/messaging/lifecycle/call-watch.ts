/**
 * Follows calls to the database: knows for how long the oldest has not been
 * answered, and lets nobody wait for a worker's once that is cancelled.
 *
 * A call that hangs, behind a lock or on a dead path, fails nothing by itself:
 * without this a relay or a consumer would look well and do nothing.
 */
import type { Clock } from './clock.ts'

/** Milliseconds without an answer after which readiness says so. */
const TELL_MS = 5_000

/** Statements in a row that somebody waits for. */
export interface Wait {
  /** Runs what is no wait for the database; what follows it is a wait of its own. */
  except<Result>(work: () => Promise<Result>): Promise<Result>
  end(): void
}

export class CallWatch {
  readonly #clock: Clock
  readonly #caller: string
  readonly #startedAt = new Set<{ readonly at: number }>()

  constructor({ clock, caller }: { readonly clock: Clock; readonly caller: 'relay' | 'consumer' }) {
    this.#clock = clock
    this.#caller = caller
  }

  /** What is wrong, as a sentence; `null` when every call is answered in time. */
  get problem(): string | null {
    // In the order in which they began.
    const [oldest] = this.#startedAt
    const waitedMs = oldest === undefined ? 0 : this.#clock.now() - oldest.at
    if (waitedMs <= TELL_MS) return null
    return `The database has not answered the ${this.#caller} for ${Math.round(waitedMs / 1000)} s`
  }

  /** `target`, with every method followed. A method's promise rejects when `cancelled` aborts, whatever becomes of the call. */
  over<Target extends object>(target: Target, cancelled: AbortSignal): Target {
    return new Proxy(target, {
      get: (object, name) => {
        const method: unknown = Reflect.get(object, name)
        if (typeof method !== 'function') return method
        return (...given: unknown[]) =>
          this.follow(() => unlessAborted((async () => Reflect.apply(method, object, given))(), cancelled))
      },
    })
  }

  /** Runs one call. */
  async follow<Result>(call: () => Promise<Result>): Promise<Result> {
    const wait = this.begin()
    try {
      return await call()
    } finally {
      wait.end()
    }
  }

  /** Begins a wait that lasts until it is ended. */
  begin(): Wait {
    let started = this.#start()
    let ended = false
    return {
      except: async (work) => {
        this.#startedAt.delete(started)
        try {
          return await work()
        } finally {
          // What it was begun for may have been given up meanwhile.
          if (!ended) started = this.#start()
        }
      },
      end: () => {
        ended = true
        this.#startedAt.delete(started)
      },
    }
  }

  #start(): { readonly at: number } {
    const started = { at: this.#clock.now() }
    this.#startedAt.add(started)
    return started
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
