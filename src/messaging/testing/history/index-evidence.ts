/** The evidence in the shape in which it is asked: built in one pass, so that every check stays linear. */
import type { CommittedEvent, Evidence, HistoryEntry, ObservedRecord } from './evidence.ts'

export interface Indexed {
  readonly evidence: Evidence
  readonly committedById: ReadonlyMap<string, CommittedEvent>
  /** Each aggregate's events in append order. */
  readonly committedByAggregate: ReadonlyMap<string, readonly CommittedEvent[]>
  /** Each committed event's records, in the order in which they were read. */
  readonly copies: ReadonlyMap<string, readonly ObservedRecord[]>
  readonly setAside: ReadonlySet<string>
  /** Each operation's entries in order. */
  readonly operations: ReadonlyMap<string, readonly HistoryEntry[]>
}

/** One name for an aggregate of a type. */
export function aggregateName(event: Pick<CommittedEvent, 'aggregateType' | 'aggregateId'>): string {
  return `${event.aggregateType} ${event.aggregateId}`
}

export function indexEvidence(evidence: Evidence): Indexed {
  const committed = [...evidence.committed].sort((a, b) => (a.seq < b.seq ? -1 : a.seq > b.seq ? 1 : 0))
  const committedById = new Map(committed.map((event) => [event.id, event]))
  return {
    evidence,
    committedById,
    committedByAggregate: groupBy(committed, aggregateName),
    copies: groupBy(
      evidence.records.filter(({ id }) => id !== null && committedById.has(id)),
      ({ id }) => id ?? '',
    ),
    setAside: new Set(evidence.setAside.map(({ id }) => id)),
    operations: groupBy(evidence.history, ({ operation }) => operation),
  }
}

function groupBy<Item>(items: readonly Item[], nameOf: (item: Item) => string): ReadonlyMap<string, readonly Item[]> {
  const groups = new Map<string, Item[]>()
  for (const item of items) {
    const name = nameOf(item)
    const group = groups.get(name)
    if (group) group.push(item)
    else groups.set(name, [item])
  }
  return groups
}
