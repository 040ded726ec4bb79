/** Extends a topic's rest until the work that needs it is done, and ends the work when the rest cannot go on. */
import type { Knex } from 'knex'
import { AdoptionError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import { type Adoption, extendAdoption } from './topic-queries.ts'

/** Milliseconds for which the topic rests on without a word from the caller. Less than the minute that a rest lasts at most. */
export const REST_MS = 15_000
/** Milliseconds between two words. */
const EXTEND_MS = 3_000

export interface RestWatchOptions {
  readonly db: Knex
  readonly adoption: Adoption
  readonly clock: Clock
  readonly timeoutMs: number
  /** Gives up. */
  readonly signal?: AbortSignal | undefined
}

export class RestWatch {
  /** What is waited for, for who asks why it took too long; `null` when for nothing. */
  obstacle: string | null = 'the database has not answered'
  readonly #options: RestWatchOptions
  readonly #over = new AbortController()

  constructor(options: RestWatchOptions) {
    this.#options = options
  }

  /** Aborts when the work is to end, done or not. */
  get signal(): AbortSignal {
    return this.#over.signal
  }

  /** Resolves once `work` has resolved to true. Rejects as it does, and with {@link AdoptionError} when the rest is over before. */
  async during(work: () => Promise<boolean>): Promise<void> {
    const done = new AbortController()
    const watching = this.#watch(done.signal).finally(() => this.#over.abort())
    watching.catch(() => {})
    try {
      // Work that was told to end says nothing; the watch says why.
      if (!(await Promise.race([work(), watching]))) await watching
    } finally {
      done.abort()
    }
  }

  /** Rejects with why the rest is over; resolves once the work is done. */
  async #watch(done: AbortSignal): Promise<void> {
    const { db, adoption, clock, timeoutMs, signal } = this.#options
    const { topic } = adoption
    const until = clock.now() + timeoutMs
    const either = signal ? AbortSignal.any([done, signal]) : done
    while (!done.aborted) {
      if (signal?.aborted) throw new AdoptionError(topic, 'it was given up')
      const left = until - clock.now()
      if (left <= 0) throw new AdoptionError(topic, `${this.obstacle ?? 'it was not done'} after ${timeoutMs} ms`)
      if (!(await extendAdoption(db, adoption, REST_MS))) {
        throw new AdoptionError(topic, 'its rest had ended meanwhile')
      }
      await clock.pause(Math.min(EXTEND_MS, left), either)
    }
  }
}
