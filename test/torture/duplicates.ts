/** What each further copy on the topic is laid to. */
import type { Evidence, HistoryEntry, ObservedRecord } from '../../src/messaging/testing/history/evidence.ts'

export interface CopiesByCause {
  /** Copies by the fault that explains them: one that can make the relay send again, and was under way or just over. */
  readonly explained: Readonly<Record<string, number>>
  /** Copies sent when no such fault was. */
  readonly unexplained: number
}

/** Milliseconds after a fault within which a copy is laid to it: a publisher repeats for so long. */
const AFTERMATH_MS = 40_000

/** Lays each further copy to the fault that began last before it was sent, of those that `sendsAgain`. */
export function attributeCopies({ records, history }: Evidence, sendsAgain: (fault: string) => boolean): CopiesByCause {
  const spans = faultSpans(history).filter(({ name }) => sendsAgain(name))
  const explained: Record<string, number> = {}
  let unexplained = 0
  for (const { at = 0 } of furtherCopies(records)) {
    const cause = spans.findLast(({ from, to }) => from <= at && at <= to + AFTERMATH_MS)?.name
    if (cause === undefined) unexplained += 1
    else explained[cause] = (explained[cause] ?? 0) + 1
  }
  return { explained, unexplained }
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
