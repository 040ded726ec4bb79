/**
 * How a state that lasts is told to a log: once when it begins, then once a
 * minute at most with how often it was met, and once when it has ended.
 */
import { type Clock, systemClock } from './clock.ts'

/** Milliseconds for which a state that was told is not told again. */
const EVERY_MS = 60_000

/** How long a state has lasted when it is told. */
export interface Lasting {
  /** How often it was met, from 1. */
  readonly times: number
  /** Seconds since it was met first. */
  readonly seconds: number
}

/** One state: of an outage, say, for the loop that waits it out. */
export interface LastingState {
  /** Notes that the state was met. Calls `tell` the first time, and again when the last telling is a minute old. */
  holds(tell: (lasting: Lasting) => void): void
  /** Notes that it is over. Calls `tell` if it was met, and once. */
  ends(tell: (lasting: Lasting) => void): void
}

/** A state that was not met yet. */
export function lastingState(clock: Pick<Clock, 'now'> = systemClock): LastingState {
  let times = 0
  let since = 0
  let toldAt = Number.NEGATIVE_INFINITY
  const lasting = () => ({ times, seconds: Math.round((clock.now() - since) / 1_000) })
  return {
    holds(tell) {
      if (times === 0) since = clock.now()
      times += 1
      if (clock.now() - toldAt < EVERY_MS) return
      toldAt = clock.now()
      tell(lasting())
    },
    ends(tell) {
      if (times === 0) return
      tell(lasting())
      times = 0
      toldAt = Number.NEGATIVE_INFINITY
    },
  }
}
