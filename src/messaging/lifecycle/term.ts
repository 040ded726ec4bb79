/**
 * A time after which something must not be done any more, also by a process
 * that was frozen, or a machine that was suspended, and knows nothing of it.
 */
import type { Clock } from './clock.ts'

export interface Term {
  /** On the clock that only grows, which all threads of a process share. */
  readonly until: number
  /** By the time of day, milliseconds since the epoch: the other clock stands still while a machine is suspended. */
  readonly untilTime: number
}

/** A term of `ms` milliseconds from now. */
export function termOf(clock: Clock, ms: number): Term {
  return { until: clock.now() + ms, untilTime: Date.now() + ms }
}

/** Whether a term is over by either clock. A time of day that jumps ahead ends it early. */
export function isOver({ until, untilTime }: Term, clock: Clock): boolean {
  return clock.now() >= until || Date.now() >= untilTime
}
