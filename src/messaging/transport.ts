/**
 * The two ports to a broker. Types only: nothing here knows a Kafka client.
 *
 * Every implementation passes the contract suite in `testing/`: the Kafka
 * driver and the in-memory broker alike.
 */
import type { Running } from './lifecycle/running.ts'

/** One partition of one topic. */
export interface TopicPartition {
  readonly topic: string
  readonly partition: number
}

/** One record to be published. Everything is text or bytes before a driver sees it. */
export interface OutgoingRecord {
  readonly key: string
  /** `null` is a tombstone. */
  readonly value: string | Buffer | null
  readonly headers: Readonly<Record<string, string>>
}

/** Records for one topic-partition. They are appended together and in this order, or not at all. */
export interface RecordBatch extends TopicPartition {
  readonly records: readonly OutgoingRecord[]
}

/** Where the broker put a batch. */
export interface PublishReceipt {
  /** The offset of the batch's first record. */
  readonly baseOffset: bigint
}

/** What is known of a topic on the broker. */
export interface TopicDescription {
  readonly partitionCount: number
  readonly replicationFactor: number
  /** `min.insync.replicas`, where the broker tells. */
  readonly minInsyncReplicas: number | null
}

/** How a topic is made when it does not exist yet. */
export interface TopicSpec {
  readonly partitionCount: number
  /** Copies of each partition; `null` leaves it to the broker's default. */
  readonly replicationFactor: number | null
}

/** Which event to look for in a partition, and from when on. */
export interface EventSearch extends TopicPartition {
  /** The header `event_id` of its record. */
  readonly eventId: string
  /** Records published before this time need not be looked at. */
  readonly from: Date
}

/** The way to the broker. One per relay thread. */
export interface Publisher {
  /** Milliseconds for which a batch is repeated at most: after that no request of it leaves. */
  readonly deliveryTimeoutMs: number

  /**
   * Publishes one batch and resolves once every in-sync replica has it.
   *
   * The caller has at most one batch per topic-partition in flight, and after a
   * rejection may send whatever it likes next: a driver that still has an
   * unknown batch on its hands has given up the producer that sent it. The
   * driver repeats a failed batch unchanged, under a deadline of its own
   * (seconds), before it rejects.
   *
   * Rejects with `PublishError`, whose `kind` and `outcome` say what to do.
   * `signal` gives up waiting; bytes that have left may still arrive.
   */
  publish(batch: RecordBatch, options: { readonly signal: AbortSignal }): Promise<PublishReceipt>

  /**
   * Describes `topic`; `null` where it does not exist.
   * Rejects with `PublishError` (outage, or destination when it may not be seen).
   */
  describeTopic(topic: string): Promise<TopicDescription | null>

  /**
   * Makes `topic` unless it exists, and resolves once it can be written to.
   * Rejects with `PublishError` of kind `destination` when that is forbidden.
   */
  createTopic(topic: string, spec: TopicSpec): Promise<TopicDescription>

  /**
   * Looks for an event among a partition's records, up to the end that the
   * partition has at the call, and takes for read what a consumer would get:
   * nothing of an aborted transaction, nothing that is not replicated yet.
   *
   * Resolves to the offset of its first record, or to `null` once everything was
   * read and it is not there. Whatever keeps it from reading to the end rejects,
   * with `PublishError`: `null` is never a guess.
   */
  findEvent(search: EventSearch, options: { readonly signal: AbortSignal }): Promise<bigint | null>

  /** Resolves if a broker answers; rejects with `PublishError` of kind `outage` otherwise. Bounded to a few seconds. */
  ping(): Promise<void>

  /** Waits for sends in flight, up to their deadline, and closes every connection. Safe to call twice. */
  close(): Promise<void>
}

/** One record as it was read. */
export interface IncomingRecord {
  readonly offset: bigint
  readonly timestamp: Date
  readonly key: Buffer | null
  readonly value: Buffer | null
  readonly headers: Readonly<Record<string, string>>
}

/** Records of one topic-partition, in offset order. */
export interface IncomingBatch extends TopicPartition {
  /** Not empty. */
  readonly records: readonly IncomingRecord[]
  /** The offset that the partition's next record will get, as far as the broker has told. */
  readonly endOffset: bigint
  /** Keeps the membership alive during long work. Cheap to call often. */
  heartbeat(): Promise<void>
  /** Aborts when the partition is no longer ours or the subscription ends: what follows will be delivered elsewhere. */
  readonly signal: AbortSignal
}

/** What became of a batch. */
export interface BatchOutcome {
  /** The offset to go on from: everything below is finished and is committed by the driver. */
  readonly nextOffset: bigint
  /** Milliseconds for which this partition alone rests before it is delivered again from `nextOffset`; 0 goes on at once. */
  readonly pauseMs: number
}

/** Where a partition is to be read from after an assignment. */
export type StartOffset = bigint | 'earliest'

export interface Subscription {
  /** The consumer group. */
  readonly groupId: string
  readonly topics: readonly string[]
  /**
   * Asked for each partition after each assignment, before its first batch. The
   * driver starts at the lower of this and the group's committed offset; a
   * partition without committed offset starts at the first record that the
   * broker still has, as with `earliest`: its topic may have been made anew, and
   * its offsets say nothing then. `endOffset` is where the partition ends: below
   * what was processed, the topic was made anew, and the driver starts at its
   * first record whatever the answer.
   */
  startOffset(where: TopicPartition, endOffset: bigint): Promise<StartOffset>
  /**
   * Never rejects in good order; if it does, the driver treats it as
   * `{ nextOffset: <first of the batch>, pauseMs: 1000 }`, and the subscription is `failing` until one resolves.
   */
  deliver(batch: IncomingBatch): Promise<BatchOutcome>
}

/** What a subscription is doing, for readiness. */
export interface SubscriptionStatus {
  /** `running` once every assigned partition knows where it begins and ends. */
  readonly phase: 'joining' | 'running' | 'failing' | 'ended'
  /** Why it is failing, as a sentence; `null` otherwise. */
  readonly reason: string | null
  /** Per assigned partition: the next offset to deliver and the end as last heard. */
  readonly partitions: readonly (TopicPartition & { readonly nextOffset: bigint; readonly endOffset: bigint })[]
}

/** A live membership in a group. */
export interface ActiveSubscription extends Running {
  status(): SubscriptionStatus
}

/** The way from the broker. */
export interface Subscriber {
  /**
   * Joins the group and delivers batches, one at a time per partition, several
   * partitions at once. Offsets are committed by the driver after `deliver`
   * resolves, up to `nextOffset`, and never beyond. A lost broker, a crash of
   * the client or a missing topic is waited out for ever and told by `status`.
   */
  subscribe(subscription: Subscription): ActiveSubscription
}
