/** How the system came back from what was done to it, strike by strike and by kind of fault. */
import type { RecoveryEvidence } from '../../src/messaging/testing/history/evidence.ts'
import type { Wait } from './steadiness.ts'

/** A strike: one fault, or two at once, and what came after. Times in milliseconds. */
export interface Recovery {
  /** The faults that landed, by name. */
  readonly faults: readonly string[]
  /** When it ended, since faults began: with the last of its faults. */
  readonly endedMs: number
  /** From the end until the system was steady and stayed so; `null` when it never was. */
  readonly steadyMs: number | null
  /** What was waited for too long until then; empty when it was steady at the end already. */
  readonly last: readonly Wait[]
  /** From the end until every process said that it was ready; `null` when one never did. */
  readonly readyMs: number | null
  /** The most events pending at once, from its beginning until it was steady. */
  readonly backlog: number
}

/** How long the recoveries from one kind of fault took, milliseconds; two faults at once count with each. */
export interface RecoveryTimes {
  readonly landed: number
  readonly medianMs: number | null
  readonly longestMs: number | null
  /** Those that took longer than allowed, and those that never came to an end. */
  readonly late: number
}

/** How long it may take, in milliseconds. */
export interface RecoveryLimits {
  readonly steadyMs: number
  readonly readyMs: number
}

/** For the judge: each recovery has two ends, and both have a limit. */
export function asEvidence(recoveries: readonly Recovery[], limits: RecoveryLimits): RecoveryEvidence[] {
  return recoveries.flatMap(({ faults, endedMs, steadyMs, readyMs }) => {
    const after = `after ${faults.join(' + ')}, which ended at ${clock(endedMs)}`
    return [
      { name: `steadiness ${after},`, tookMs: steadyMs, withinMs: limits.steadyMs },
      { name: `readiness ${after},`, tookMs: readyMs, withinMs: limits.readyMs },
    ]
  })
}

/** Times by fault, the slowest first. */
export function timesByFault(
  recoveries: readonly Recovery[],
  { steadyMs }: RecoveryLimits,
): Record<string, RecoveryTimes> {
  const names = new Set(recoveries.flatMap(({ faults }) => faults))
  const times = [...names].map((name): [string, RecoveryTimes] => [
    name,
    timesOf(
      recoveries.filter(({ faults }) => faults.includes(name)),
      steadyMs,
    ),
  ])
  const order = ({ longestMs }: RecoveryTimes) => longestMs ?? Number.POSITIVE_INFINITY
  return Object.fromEntries(times.sort(([, a], [, b]) => order(b) - order(a)))
}

/** Of all of `recoveries` together. */
export function timesOf(recoveries: readonly Recovery[], withinMs: number): RecoveryTimes {
  const took = recoveries.map(({ steadyMs }) => steadyMs ?? Number.POSITIVE_INFINITY).sort((a, b) => a - b)
  const orNull = (ms: number | undefined) => (ms === undefined || ms === Number.POSITIVE_INFINITY ? null : ms)
  return {
    landed: took.length,
    medianMs: orNull(took[Math.floor(took.length / 2)]),
    longestMs: orNull(took.at(-1)),
    late: took.filter((ms) => ms > withinMs).length,
  }
}

/** Minutes and seconds: `02:13`. */
export function clock(ms: number): string {
  return new Date(ms).toISOString().slice(14, 19)
}
