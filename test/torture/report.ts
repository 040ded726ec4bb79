/** What a torture has shown, as data and as text. */
import type { Verdict } from '../../src/messaging/testing/history/check-history.ts'
import type { Evidence, HistoryEntry, ObservedRecord } from '../../src/messaging/testing/history/evidence.ts'

export interface TortureReport {
  readonly seed: number
  readonly minutes: number
  readonly verdict: Verdict
  /** Further copies on the topic, by what was going on when they were sent. */
  readonly duplicatesByCause: Readonly<Record<string, number>>
  /** Milliseconds until every process was ready again, by fault. */
  readonly recoveries: Evidence['recoveries']
  /** Milliseconds from the last fault until nothing was pending or unprocessed; `null` when it did not come to that. */
  readonly caughtUpMs: number | null
  /** Faults that could not be inflicted. */
  readonly failedFaults: readonly string[]
  /** Mutations a second that were answered ok, over the whole run. */
  readonly okPerSecond: number
}

/** Milliseconds after a fault within which a copy is laid to it: a publisher repeats for so long. */
const AFTERMATH_MS = 40_000

/** Lays each further copy to the fault that began last before it was sent. */
export function attributeDuplicates({ records, history }: Evidence): Record<string, number> {
  const spans = faultSpans(history)
  const causes: Record<string, number> = {}
  for (const { at = 0 } of furtherCopies(records)) {
    const cause = spans.findLast(({ from, to }) => from <= at && at <= to + AFTERMATH_MS)?.name ?? 'no fault'
    causes[cause] = (causes[cause] ?? 0) + 1
  }
  return causes
}

function furtherCopies(records: readonly ObservedRecord[]): ObservedRecord[] {
  const seen = new Set<string>()
  return records.filter(({ id }) => {
    if (id === null || !seen.has(id)) {
      if (id !== null) seen.add(id)
      return false
    }
    return true
  })
}

function faultSpans(history: readonly HistoryEntry[]): { name: string; from: number; to: number }[] {
  const begun = new Map<string, number>()
  const spans: { name: string; from: number; to: number }[] = []
  for (const { actor, kind, operation, name, at } of history) {
    if (actor !== 'nemesis') continue
    if (kind === 'invoke') begun.set(operation, at)
    else spans.push({ name, from: begun.get(operation) ?? at, to: at })
  }
  return spans.sort((a, b) => a.from - b.from)
}

/** The report for a reader. */
export function renderReport(report: TortureReport): string {
  const { verdict, recoveries, caughtUpMs } = report
  const { counts } = verdict
  const { ok, fail, info } = counts.operations
  const took = recoveries.flatMap(({ tookMs }) => tookMs ?? []).sort((a, b) => a - b)
  return [
    `Torture with seed ${report.seed}, ${report.minutes} minutes: ${verdict.verdict.toUpperCase()}`,
    '',
    `Mutations: ${ok} ok, ${fail} failed for certain, ${info} unknown; ${report.okPerSecond.toFixed(0)} ok a second.`,
    `Events: ${counts.committed} committed, ${counts.records} records, ${counts.duplicates} of them further copies, ${counts.setAside} set aside.`,
    `Faults that landed: ${list(counts.faults)}.`,
    `Further copies by what was going on: ${list(report.duplicatesByCause)}.`,
    `Recovery: ${took.length} times, median ${seconds(took[Math.floor(took.length / 2)])}, longest ${seconds(took.at(-1))}; the backlog was gone ${seconds(caughtUpMs ?? undefined)} after the end.`,
    ...report.failedFaults.map((failed) => `Not inflicted: ${failed}`),
    ...verdict.doubts.map((doubt) => `Proves nothing: ${doubt}.`),
    ...Object.entries(verdict.violationCounts).map(([invariant, count]) => `${invariant} is broken ${count} times:`),
    ...verdict.violations.flatMap(({ invariant, problem, around }) => [
      `  ${invariant}: ${problem}`,
      ...around.map(({ at, actor, kind, name }) => `      ${new Date(at).toISOString()} ${actor} ${name}: ${kind}`),
    ]),
  ].join('\n')
}

function list(counts: Readonly<Record<string, number>>): string {
  const entries = Object.entries(counts).sort(([, a], [, b]) => b - a)
  return entries.length === 0 ? 'none' : entries.map(([name, count]) => `${name} ${count}`).join(', ')
}

function seconds(ms: number | undefined): string {
  return ms === undefined ? 'never' : `${(ms / 1_000).toFixed(1)} s`
}
