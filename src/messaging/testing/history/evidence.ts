/**
 * What a run leaves behind, as plain data: what was committed, what stands on
 * the topics, what consumers made of it, and what every actor said meanwhile.
 *
 * Read after the run, from the tables and from every partition's first offset,
 * so that nothing rests on what a process believed while it was being killed.
 */

/** One line of history. An actor says `invoke` before it acts, and then what it knows of the outcome. */
export interface HistoryEntry {
  /** Who: `client-3`, `nemesis`. Faults are whatever the actor `nemesis` does. */
  readonly actor: string
  /** Milliseconds since the epoch; comparable between the processes of one machine. */
  readonly at: number
  readonly kind: 'invoke' | 'ok' | 'fail' | 'info'
  /** Joins an outcome to its invocation; unique within the run. */
  readonly operation: string
  /** What was done: `placeOrder`, `kill relay`. */
  readonly name: string
  /** The events that the answer named. */
  readonly eventIds?: readonly string[]
  /** The aggregate concerned, where one is. */
  readonly aggregateId?: string
  /** The idempotency key sent along, where one was. */
  readonly idempotencyKey?: string
  /** Anything else worth reading beside a violation. */
  readonly detail?: Readonly<Record<string, unknown>>
}

/** A committed outbox row, as the shadow kept it. */
export interface CommittedEvent {
  readonly id: string
  /** Append order. */
  readonly seq: bigint
  /** The topic that the topic rule gives, or the row's own. */
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: number | null
  readonly type: string
  /** Java's murmur2 of the aggregate id, signed. */
  readonly keyHash: number
  /** SHA-256 of the payload's text, hexadecimal; `null` for a tombstone. */
  readonly payloadHash: string | null
  /** The operation that wrote it, where the payload tells; joins the row to the history. */
  readonly operation: string | null
}

/** One record as it stands on a topic. */
export interface ObservedRecord {
  readonly topic: string
  readonly partition: number
  readonly offset: bigint
  readonly key: string | null
  /** The header `event_id`; `null` where there is none. */
  readonly id: string | null
  readonly type: string | null
  readonly version: number | null
  /** SHA-256 of the value, hexadecimal; `null` for a tombstone. */
  readonly payloadHash: string | null
  /** The record's time, milliseconds since the epoch: when it was sent. Tells what was going on then; no promise rests on it. */
  readonly at?: number
}

/** A topic's partition counts, oldest first: one, or one more for each declared resize. */
export interface TopicShape {
  readonly topic: string
  readonly partitionCounts: readonly number[]
}

/** What one consumer has done. */
export interface ConsumerEvidence {
  readonly consumer: string
  readonly topics: readonly string[]
  /** The event ids that its inbox remembers. */
  readonly processed: readonly string[]
  /** The ids in its log of effects, once per effect; `null` where effects are not logged one by one. */
  readonly effects: readonly string[] | null
  /** Ids set aside with a reason: dead letters, and followers that wait behind one. */
  readonly deadLetters: readonly string[]
  /** Event types that it has no handler for. */
  readonly ignoredTypes: readonly string[]
  /** How far the group has committed. */
  readonly committedOffsets: readonly { readonly topic: string; readonly partition: number; readonly offset: bigint }[]
}

/** An aggregate's state beside its events. */
export interface StateEvidence {
  readonly aggregateType: string
  readonly aggregateId: string
  /** The version that the state row carries. */
  readonly version: number
}

/** Something that adds up over the set of events, such as a customer's total. */
export interface SumEvidence {
  readonly name: string
  /** Computed from the committed events, each taken once. */
  readonly expected: string | number | bigint
  /** What the consumer's database says. */
  readonly actual: string | number | bigint
}

/** A settled row and the lease under which it was settled. */
export interface MarkEvidence {
  readonly id: string
  readonly lane: number
  readonly owner: string
  readonly token: bigint
  /** The lane's owner and token at that moment, from the directory itself. */
  readonly leaseOwner: string | null
  readonly leaseToken: bigint
}

/** How it stood once everything had calmed down. */
export interface FinalState {
  /** Events neither published nor held. */
  readonly pending: number
  /** Each lane's owner. */
  readonly lanes: readonly { readonly lane: number; readonly owner: string | null }[]
  /** Workers alive at the end; `null` where relays were stopped on purpose. */
  readonly liveOwners: readonly string[] | null
}

/** How long a part needed after a fault, and how long it may. */
export interface RecoveryEvidence {
  readonly name: string
  /** `null` where it did not recover at all. */
  readonly tookMs: number | null
  readonly withinMs: number
}

/** All that a verdict rests on. */
export interface Evidence {
  readonly history: readonly HistoryEntry[]
  readonly committed: readonly CommittedEvent[]
  /**
   * Whether `committed` began before anything was appended. An aggregate's first
   * event then has version 1, or one before it was lost.
   */
  readonly fromTheStart: boolean
  /** All records of all topics, in offset order within a partition. */
  readonly records: readonly ObservedRecord[]
  readonly topics: readonly TopicShape[]
  /** Events that need not stand on a topic, with the reason that was recorded: parked, skipped, dead letter. */
  readonly setAside: readonly { readonly id: string; readonly reason: string }[]
  /** Events that were declared skipped by the relay: they must not stand on a topic. */
  readonly skipped: readonly string[]
  readonly consumers: readonly ConsumerEvidence[]
  readonly states: readonly StateEvidence[]
  readonly sums: readonly SumEvidence[]
  readonly marks: readonly MarkEvidence[]
  readonly recoveries: readonly RecoveryEvidence[]
  readonly final: FinalState | null
  /**
   * How many things happened that may send an event again: unknown produce
   * outcomes, lease takeovers, retired producers, redrives. No event may have
   * more further copies than that.
   */
  readonly disturbances: number
  /** Whether the run was meant to have faults. Without any that landed under load it proves nothing then. */
  readonly faultsExpected: boolean
}

/** Evidence of nothing, to be filled in: `{ ...noEvidence, committed, records }`. */
export const noEvidence: Evidence = {
  history: [],
  committed: [],
  fromTheStart: true,
  records: [],
  topics: [],
  setAside: [],
  skipped: [],
  consumers: [],
  states: [],
  sums: [],
  marks: [],
  recoveries: [],
  final: null,
  disturbances: 0,
  faultsExpected: false,
}
