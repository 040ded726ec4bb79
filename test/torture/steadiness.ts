/**
 * When the system is steady: nobody waits long, neither an event for the broker,
 * nor an event for its effect, nor a client for an answer. Pure: looks in, a
 * moment out.
 */

/** What can be waited for. */
export const waits = ['broker', 'effect', 'answer'] as const
export type Wait = (typeof waits)[number]

/**
 * Milliseconds of each wait: how long the oldest event pending has waited for the
 * broker, how long the oldest event that a client was answered has been without
 * its effect, and how long no client has been answered.
 */
export type Waits = Readonly<Record<Wait, number>>

/** How it stood at one moment. */
export interface Look {
  /** `performance.now()` at its end. */
  readonly at: number
  /** `null` where the database did not answer. */
  readonly waits: Waits | null
  /** Events pending. */
  readonly pending: number
}

/** The longest waits of a steady system. Pending for a second is what alerts call late; an effect has the way through Kafka before it. */
export const STEADY: Waits = { broker: 1_000, effect: 2_000, answer: 1_000 }

/** The beginning of a steady time. */
export interface Steadiness {
  readonly at: number
  /** What was waited for too long at the last look before it; empty when all was well from the beginning. */
  readonly last: readonly Wait[]
}

/**
 * Milliseconds for which no wait may be too long: more than the longest of them,
 * since what has stood still from the beginning of a steady time shows by its end.
 */
export function holdMs(bounds: Waits): number {
  return Math.max(...waits.map((wait) => bounds[wait])) + 1_000
}

/** The first steady time among `looks`, or `null` while there is none. */
export function findSteadiness(looks: readonly Look[], bounds: Waits): Steadiness | null {
  const hold = holdMs(bounds)
  let first: Look | null = null
  let last: readonly Wait[] = []
  for (const look of looks) {
    const over = tooLong(look, bounds)
    if (over.length > 0) {
      first = null
      last = over
      continue
    }
    first ??= look
    if (look.at - first.at >= hold) return { at: first.at, last }
  }
  return null
}

/** The longest of each wait that `looks` have seen, and no less than `least`: a machine so slow is steady at that. */
export function loosen(least: Waits, looks: readonly Look[]): Waits {
  const seen = (wait: Wait) => looks.flatMap((look) => look.waits?.[wait] ?? [])
  const longest = (wait: Wait) => Math.round(Math.max(least[wait], ...seen(wait)))
  return { broker: longest('broker'), effect: longest('effect'), answer: longest('answer') }
}

function tooLong({ waits: seen }: Look, bounds: Waits): readonly Wait[] {
  return seen === null ? waits : waits.filter((wait) => seen[wait] > bounds[wait])
}
