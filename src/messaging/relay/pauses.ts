/** Which topics and partitions rest after a failure, why, and until when. Each failure in a row makes the rest longer. */
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { PausedDestination } from '../source.ts'

const outageBackoff: Backoff = { firstMs: 100, maxMs: 5_000 }
const destinationBackoff: Backoff = { firstMs: 1_000, maxMs: 30_000 }

/**
 * Milliseconds after its end for which a pause is still told of: until then it
 * is tried again, or there was nothing more to try, and nobody knows of a fault.
 */
const TELL_AFTER_MS = 10_000

/** A topic, or one partition of it. */
export interface Place {
  readonly topic: string
  /** `null` is all of the topic. */
  readonly partition: number | null
}

interface Pause extends Place {
  readonly kind: PausedDestination['kind']
  /** `null` is no fault, and not told of. */
  readonly reason: string | null
  /** Failures in a row. */
  readonly attempts: number
  readonly until: number
}

export class Pauses {
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #pauses = new Map<string, Pause>()

  constructor({ clock, logger }: { readonly clock: Clock; readonly logger: Logger }) {
    this.#clock = clock
    this.#logger = logger
  }

  /** Whether this very place rests at `now`. */
  has(place: Place, now: number): boolean {
    const pause = this.#pauses.get(nameOf(place))
    return pause !== undefined && pause.until > now
  }

  /** Lets a place rest after a failure, for longer each time. */
  add(place: Place, kind: Pause['kind'], reason: string): void {
    const attempts = (this.#pauses.get(nameOf(place))?.attempts ?? 0) + 1
    const pauseMs = backoffMs(kind === 'outage' ? outageBackoff : destinationBackoff, attempts, this.#clock.random())
    if (attempts === 1) this.#logger.warn({ ...place, kind, reason }, 'Destination paused')
    this.#set({ ...place, kind, reason, attempts, until: this.#clock.now() + pauseMs })
  }

  /** Lets a place rest for `ms` without a fault. */
  wait(place: Place, ms: number): void {
    this.#set({ ...place, kind: 'destination', reason: null, attempts: 0, until: this.#clock.now() + ms })
  }

  /** It works: the next pause starts small again. */
  delete(place: Place): void {
    this.#pauses.delete(nameOf(place))
  }

  /** What rests at `now`. */
  resting(now: number): readonly Place[] {
    return [...this.#pauses.values()].filter(({ until }) => until > now)
  }

  /** Milliseconds until the next pause ends; `null` when nothing rests. */
  nextEndInMs(): number | null {
    const now = this.#clock.now()
    const waits = [...this.#pauses.values()].map(({ until }) => until - now).filter((wait) => wait > 0)
    return waits.length === 0 ? null : Math.min(...waits)
  }

  /** The faults that rest or are being tried again, for readiness. */
  told(): readonly PausedDestination[] {
    const since = this.#clock.now() - TELL_AFTER_MS
    return [...this.#pauses.values()].flatMap(({ topic, partition, kind, reason, until }) =>
      reason === null || until <= since ? [] : [{ topic, partition, kind, reason }],
    )
  }

  #set(pause: Pause): void {
    this.#pauses.set(nameOf(pause), pause)
  }
}

function nameOf({ topic, partition }: Place): string {
  return `${topic}/${partition ?? '*'}`
}
