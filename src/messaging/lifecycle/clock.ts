/**
 * Time and chance, as something that can be replaced: a simulation runs hours
 * in seconds and repeats them exactly from a seed.
 */
import { setTimeout as sleep } from 'node:timers/promises'

export interface Clock {
  /** Milliseconds that only grow, the same in all threads of a process; not the time of day, which can jump. */
  now(): number
  /** Resolves after `ms`, or as soon as `signal` aborts. Never rejects. */
  pause(ms: number, signal: AbortSignal): Promise<void>
  /** At least 0, below 1. */
  random(): number
}

/** The real one. */
export const systemClock: Clock = {
  // Not `performance.now()`, which begins anew in each thread.
  now: () => Number(process.hrtime.bigint()) / 1e6,
  random: Math.random,
  async pause(ms, signal) {
    if (signal.aborted) return
    await sleep(ms, undefined, { signal }).catch(() => {})
  },
}
