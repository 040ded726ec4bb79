/** What a consumer says of itself. Types only. */
import type { Status } from '../lifecycle/status.ts'
import type { SubscriptionStatus, TopicPartition } from '../transport.ts'
import type { HoldingEvent } from './board.ts'

/**
 * One partition as this consumer sees it. Offsets are plain numbers, so that a
 * status is JSON as it stands: no partition comes to 2^53 records.
 */
export interface PartitionStatus extends TopicPartition {
  /** The next offset to deliver. */
  readonly nextOffset: number
  /** Records between it and the end, as last heard from the broker. */
  readonly lag: number
}

/** What a consumer says of itself. */
export interface ConsumerStatus extends Status {
  readonly phase: SubscriptionStatus['phase']
  /** The partitions assigned to this member. */
  readonly partitions: readonly PartitionStatus[]
  /** Events that hold their partitions until the next attempt. */
  readonly holding: readonly HoldingEvent[]
  /** Keys parked for this consumer, in all of its instances; counted up to 1,000. */
  readonly parkedCount: number
}
