/** How the Kafka subscriber behaves. */
import { InvalidOptionError } from '../errors.ts'
import { requireKnown, requireWhole, withDefaults } from '../options.ts'
import { type KafkaOptions, kafkaOptions, type ResolvedKafkaOptions, resolveKafkaOptions } from './options.ts'

/** Options of the Kafka subscriber. Every one beyond the cluster itself has a default. */
export interface KafkaSubscriberOptions extends KafkaOptions {
  /**
   * Milliseconds of silence after which the group takes a member for dead.
   * Fewer hands its partitions on sooner; more rides out longer pauses of the
   * process. The broker sets limits, usually 6 s and 30 min.
   * @defaultValue 10_000
   */
  readonly sessionTimeoutMs?: number
  /**
   * Milliseconds that a fetch waits at the broker for records. More idles
   * cheaper; fewer resumes a paused partition sooner. New records end the wait.
   * @defaultValue 500
   */
  readonly maxWaitMs?: number
  /**
   * Bytes that one fetch takes of a partition, and so about the size of a
   * batch. A larger record is fetched alone.
   * @defaultValue 1_048_576
   */
  readonly maxPartitionBytes?: number
  /**
   * Milliseconds for which a partition may have records and bring none before
   * the membership is built anew. Fewer heals sooner; more spares rebalances
   * while a broker is slow.
   * @defaultValue 60_000
   */
  readonly stallTimeoutMs?: number
  /**
   * Milliseconds that a stopping subscription gives the batches in hand.
   * @defaultValue 10_000
   */
  readonly graceMs?: number
}

/** {@link KafkaSubscriberOptions} with nothing left open. */
export interface ResolvedSubscriberOptions extends ResolvedKafkaOptions {
  readonly sessionTimeoutMs: number
  readonly maxWaitMs: number
  readonly maxPartitionBytes: number
  readonly stallTimeoutMs: number
  readonly graceMs: number
}

/** What {@link KafkaSubscriberOptions} are when not given. */
export const subscriberDefaults = {
  sessionTimeoutMs: 10_000,
  maxWaitMs: 500,
  maxPartitionBytes: 1_048_576,
  stallTimeoutMs: 60_000,
  graceMs: 10_000,
} as const

/** Fills in the defaults. Throws {@link InvalidOptionError} naming the first option it cannot use. */
export function resolveSubscriberOptions(options: KafkaSubscriberOptions): ResolvedSubscriberOptions {
  requireKnown(options, { ...kafkaOptions, ...subscriberDefaults })
  const resolved = {
    ...resolveKafkaOptions(options),
    ...withDefaults<KafkaSubscriberOptions, keyof typeof subscriberDefaults>(options, subscriberDefaults),
  }
  requireWhole('sessionTimeoutMs', resolved.sessionTimeoutMs)
  requireWhole('maxWaitMs', resolved.maxWaitMs)
  requireWhole('maxPartitionBytes', resolved.maxPartitionBytes)
  requireWhole('stallTimeoutMs', resolved.stallTimeoutMs)
  requireWhole('graceMs', resolved.graceMs)
  if (resolved.maxWaitMs * 3 > resolved.sessionTimeoutMs) {
    throw new InvalidOptionError('maxWaitMs', resolved.maxWaitMs, 'at most a third of sessionTimeoutMs')
  }
  return resolved
}
