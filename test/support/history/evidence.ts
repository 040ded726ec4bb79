/** Evidence of a small run in which all went well, to be damaged by tests of the checker. */
import {
  type CommittedEvent,
  type Evidence,
  type HistoryEntry,
  noEvidence,
  type ObservedRecord,
} from '../../../src/messaging/testing/history/evidence.ts'

const TOPIC = 'order.events'
const PARTITIONS = 4

export interface RunShape {
  readonly aggregates: number
  readonly eventsEach: number
  /** Further copies of events, by position in append order, appended behind everything else. */
  readonly repeats?: readonly number[]
}

/** Aggregates take turns, as concurrent clients would let them; one fault happens while they do. */
export function goodRun({ aggregates, eventsEach, repeats = [] }: RunShape): Evidence {
  const committed = Array.from({ length: aggregates * eventsEach }, (_, index) => commit(index, aggregates))
  const again = repeats.map((index) => committed[index % committed.length]).filter((event) => event !== undefined)
  const records = publish([...committed, ...again])
  const ends = new Map<number, bigint>()
  for (const { partition, offset } of records) ends.set(partition, offset + 1n)

  return {
    ...noEvidence,
    history: [...committed.flatMap(tell), ...fault(committed.length)].sort((a, b) => a.at - b.at),
    committed,
    records,
    topics: [{ topic: TOPIC, partitionCounts: [PARTITIONS] }],
    consumers: [
      {
        consumer: 'summary',
        topics: [TOPIC],
        processed: committed.map(({ id }) => id),
        effects: committed.map(({ id }) => id),
        deadLetters: [],
        ignoredTypes: [],
        committedOffsets: [...ends].map(([partition, offset]) => ({ topic: TOPIC, partition, offset })),
      },
    ],
    states: Array.from({ length: aggregates }, (_, index) => ({
      aggregateType: 'order',
      aggregateId: `order-${index}`,
      version: eventsEach,
    })),
    sums: [{ name: 'total', expected: committed.length, actual: BigInt(committed.length) }],
    marks: committed.map(({ id }) => ({ id, lane: 0, owner: 'a', token: 1n, leaseOwner: 'a', leaseToken: 1n })),
    recoveries: [{ name: 'relay', tookMs: 900, withinMs: 1_000 }],
    final: { pending: 0, lanes: [{ lane: 0, owner: 'a' }], liveOwners: ['a'] },
    disturbances: repeats.length,
    faultsExpected: true,
  }
}

function commit(index: number, aggregates: number): CommittedEvent {
  const aggregate = index % aggregates
  const version = Math.floor(index / aggregates) + 1
  return {
    id: `event-${index}`,
    seq: BigInt(index + 1),
    topic: TOPIC,
    aggregateType: 'order',
    aggregateId: `order-${aggregate}`,
    version,
    type: version === 1 ? 'OrderPlaced' : 'OrderChanged',
    keyHash: -1 - aggregate,
    payloadHash: `hash-${index}`,
    operation: `operation-${index}`,
  }
}

function publish(events: readonly CommittedEvent[]): ObservedRecord[] {
  const offsets = new Map<number, bigint>()
  return events.map((event) => {
    const partition = (event.keyHash & 0x7fffffff) % PARTITIONS
    const offset = offsets.get(partition) ?? 0n
    offsets.set(partition, offset + 1n)
    const { topic, aggregateId: key, id, type, version, payloadHash } = event
    return { topic, partition, offset, key, id, type, version, payloadHash }
  })
}

function tell(event: CommittedEvent, index: number): HistoryEntry[] {
  const said = { actor: 'client', operation: `operation-${index}`, name: 'change', aggregateId: event.aggregateId }
  return [
    { ...said, kind: 'invoke', at: index * 10 },
    { ...said, kind: 'ok', at: index * 10 + 5, eventIds: [event.id], idempotencyKey: `key-${index}` },
  ]
}

function fault(until: number): HistoryEntry[] {
  const said = { actor: 'nemesis', operation: 'fault-1', name: 'kill relay' }
  return [
    { ...said, kind: 'invoke', at: 1 },
    { ...said, kind: 'ok', at: until * 10 },
  ]
}
