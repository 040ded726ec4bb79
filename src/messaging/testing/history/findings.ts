/** How violations are collected: all are counted, the first of each kind are kept. */
import type { HistoryEntry } from './evidence.ts'

/** The promises, by the numbers under which they are known. */
export const INVARIANTS = {
  I1: 'state and event stand or fall together',
  I2: 'an answer is true: ok is committed, fail is not',
  I3: 'no committed event is lost',
  I4: 'every record is a committed event, unaltered',
  I5: 'an aggregate stays on its partition',
  I6: 'first occurrences of an aggregate stand in commit order',
  I7: 'an event is doubled no more often than something could double it',
  I8: 'an effect happens once',
  I9: 'a committed offset passes nothing unfinished',
  I10: 'nothing is settled under a stale lease',
  I11: 'the backlog drains and every lane has a living owner',
  I12: 'a repeated request has one effect and one answer',
  I13: 'a skipped event is on no topic',
} as const

export type Invariant = keyof typeof INVARIANTS

/** One broken promise. */
export interface Violation {
  readonly invariant: Invariant
  /** One sentence, with places and numbers. */
  readonly problem: string
  /** The event ids concerned. */
  readonly ids: readonly string[]
  readonly aggregateId: string | null
  /** What was said about these ids and this aggregate, oldest first; filled in by the verdict. */
  readonly around: readonly HistoryEntry[]
}

/** Collects violations: counts every one, keeps the first `keep` of each invariant. */
export class Findings {
  readonly #kept: Violation[] = []
  readonly #counts = new Map<Invariant, number>()
  readonly #keep: number

  constructor(keep: number) {
    this.#keep = keep
  }

  add(
    invariant: Invariant,
    problem: string,
    about: { ids?: readonly string[]; aggregateId?: string | null } = {},
  ): void {
    const count = (this.#counts.get(invariant) ?? 0) + 1
    this.#counts.set(invariant, count)
    if (count > this.#keep) return
    this.#kept.push({ invariant, problem, ids: about.ids ?? [], aggregateId: about.aggregateId ?? null, around: [] })
  }

  get kept(): readonly Violation[] {
    return this.#kept
  }

  /** How often each invariant was broken, those that never were left out. */
  get counts(): Readonly<Partial<Record<Invariant, number>>> {
    return Object.fromEntries(this.#counts)
  }
}
