/**
 * The verdict on a run: valid, invalid with the evidence, or unknown.
 *
 * Pure and linear: data in, verdict out, so that a checker which has gone blind
 * can be found by altering the data. `unknown` is no success: a run in which
 * nothing was produced, or no fault met any load, has proved nothing.
 */
import { checkEffects, checkOffsets } from './check-consumers.ts'
import {
  checkAnswers,
  checkAtomicity,
  checkFencing,
  checkIdempotency,
  checkLiveness,
  isFault,
} from './check-database.ts'
import {
  checkDuplicates,
  checkNothingInvented,
  checkNothingLost,
  checkOrder,
  checkPlacement,
  checkSkipped,
} from './check-topics.ts'
import type { Evidence, HistoryEntry } from './evidence.ts'
import { Findings, type Invariant, type Violation } from './findings.ts'
import { indexEvidence } from './index-evidence.ts'

/** What a run showed. */
export interface Verdict {
  readonly verdict: 'valid' | 'invalid' | 'unknown'
  /** Why it is unknown, one sentence each. */
  readonly doubts: readonly string[]
  /** The first violations of each invariant, with the history around them. */
  readonly violations: readonly Violation[]
  /** All violations, counted by invariant. */
  readonly violationCounts: Readonly<Partial<Record<Invariant, number>>>
  readonly counts: {
    readonly committed: number
    readonly records: number
    /** Records beyond the first of each event. */
    readonly duplicates: number
    readonly setAside: number
    readonly operations: { readonly ok: number; readonly fail: number; readonly info: number }
    /** Faults that landed, by name. */
    readonly faults: Readonly<Record<string, number>>
  }
}

const CHECKS = [
  checkAtomicity,
  checkAnswers,
  checkNothingLost,
  checkNothingInvented,
  checkPlacement,
  checkOrder,
  checkDuplicates,
  checkEffects,
  checkOffsets,
  checkFencing,
  checkLiveness,
  checkIdempotency,
  checkSkipped,
]

/** Entries of history shown beside one violation. */
const AROUND = 20

/**
 * Judges `evidence`. `keep` is how many violations of each invariant are shown
 * in full; all are counted. @defaultValue 10
 */
export function checkHistory(evidence: Evidence, { keep = 10 }: { readonly keep?: number } = {}): Verdict {
  const indexed = indexEvidence(evidence)
  const findings = new Findings(keep)
  for (const check of CHECKS) check(indexed, findings)
  const doubts = findDoubts(evidence)

  return {
    verdict: findings.kept.length > 0 ? 'invalid' : doubts.length > 0 ? 'unknown' : 'valid',
    doubts,
    violations: findings.kept.map((violation) => ({
      ...violation,
      around: historyAround(violation, evidence.history),
    })),
    violationCounts: findings.counts,
    counts: {
      committed: evidence.committed.length,
      records: evidence.records.length,
      duplicates: [...indexed.copies.values()].reduce((sum, copies) => sum + copies.length - 1, 0),
      setAside: evidence.setAside.length,
      operations: countOutcomes(evidence.history),
      faults: countFaults(evidence.history),
    },
  }
}

function findDoubts({ committed, records, history, faultsExpected }: Evidence): string[] {
  const doubts: string[] = []
  if (committed.length === 0) doubts.push('nothing was committed')
  if (records.length === 0) doubts.push('nothing was published')
  if (!faultsExpected) return doubts
  const windows = faultWindows(history)
  if (windows.length === 0) doubts.push('no fault landed')
  else if (!history.some((entry) => isLoadDuring(entry, windows))) doubts.push('no fault met any load')
  return doubts
}

interface Span {
  readonly from: number
  readonly to: number
}

/** From a fault's invocation to its end; a fault that did not land has no window. */
function faultWindows(history: readonly HistoryEntry[]): Span[] {
  const begun = new Map<string, number>()
  const windows: Span[] = []
  for (const entry of history) {
    if (!isFault(entry)) continue
    if (entry.kind === 'invoke') begun.set(entry.operation, entry.at)
    if (entry.kind === 'ok') windows.push({ from: begun.get(entry.operation) ?? entry.at, to: entry.at })
  }
  return windows
}

function isLoadDuring(entry: HistoryEntry, windows: readonly Span[]): boolean {
  return !isFault(entry) && windows.some(({ from, to }) => entry.at >= from && entry.at <= to)
}

function countOutcomes(history: readonly HistoryEntry[]): Verdict['counts']['operations'] {
  const counts = { invoke: 0, ok: 0, fail: 0, info: 0 }
  for (const entry of history) if (!isFault(entry)) counts[entry.kind] += 1
  return { ok: counts.ok, fail: counts.fail, info: counts.info }
}

function countFaults(history: readonly HistoryEntry[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const entry of history) {
    if (isFault(entry) && entry.kind === 'ok') counts[entry.name] = (counts[entry.name] ?? 0) + 1
  }
  return counts
}

function historyAround(violation: Violation, history: readonly HistoryEntry[]): readonly HistoryEntry[] {
  const ids = new Set(violation.ids)
  const operations = new Set<string>()
  for (const entry of history) {
    const named = entry.eventIds?.some((id) => ids.has(id)) ?? false
    const same = violation.aggregateId !== null && entry.aggregateId === violation.aggregateId
    if (named || same) operations.add(entry.operation)
  }
  const concerned = history.filter(({ operation }) => operations.has(operation))
  const [first, last] = [concerned.at(0)?.at, concerned.at(-1)?.at]
  if (first === undefined || last === undefined) return []
  // Faults between the first and the last word about these events are the likely culprits.
  const faults = history.filter((entry) => isFault(entry) && entry.at >= first - 1_000 && entry.at <= last + 10_000)
  return [...concerned.slice(0, AROUND), ...faults.slice(0, AROUND)].sort((a, b) => a.at - b.at)
}
