/** What the relay and the Kafka client measure of the broker: sends, topics, memberships. */
import {
  ATTR_DESTINATION,
  ATTR_ERROR_TYPE,
  ATTR_GROUP,
  ATTR_OPERATION_NAME,
  ATTR_OUTBOX,
  ATTR_SYSTEM,
  errorType,
  errorWord,
  KAFKA,
  outboxName,
} from './attributes.ts'
import { rememberErrorTypes } from './error-types.ts'
import { getInstruments } from './metrics.ts'

const typeOf = rememberErrorTypes()

/** Measures one send of `count` events: how long it took, and whether it failed. */
export function measureSend(send: {
  readonly topic: string
  readonly count: number
  readonly seconds: number
  /** `null` when the broker accepted it. */
  readonly failure: Error | null
}): void {
  const attributes = {
    [ATTR_SYSTEM]: KAFKA,
    [ATTR_OPERATION_NAME]: 'send',
    [ATTR_DESTINATION]: send.topic,
    ...(send.failure === null ? {} : { [ATTR_ERROR_TYPE]: typeOf(errorType(send.failure)) }),
  }
  const instruments = getInstruments()
  instruments.sentMessages.add(send.count, attributes)
  instruments.clientOperationDuration.record(send.seconds, attributes)
}

/** Counts that a send, which has failed for `reason`, makes another attempt necessary. */
export function countRetry(reason: string): void {
  getInstruments().retries.add(1, { [ATTR_OUTBOX]: outboxName(), [ATTR_ERROR_TYPE]: typeOf(errorWord(reason)) })
}

/** Shows whether a topic has other partitions than the relays use, and whether it would lose events with two brokers. */
export function measureTopic(topic: {
  readonly name: string
  readonly partitionCount: number
  /** What the relays use. */
  readonly usedPartitionCount: number
  readonly replicationFactor: number
  /** `null` where the broker does not tell. */
  readonly minInsyncReplicas: number | null
}): void {
  const { replicationFactor, minInsyncReplicas } = topic
  const attributes = { [ATTR_OUTBOX]: outboxName(), [ATTR_DESTINATION]: topic.name }
  const instruments = getInstruments()
  instruments.topicPartitionsChanged.record(Number(topic.partitionCount !== topic.usedPartitionCount), attributes)
  const weak = replicationFactor < 3 || (minInsyncReplicas !== null && minInsyncReplicas < 2)
  instruments.topicWeak.record(Number(weak), attributes)
}

/** Counts that a group gave this member its partitions anew. */
export function countRebalance(group: string): void {
  getInstruments().rebalances.add(1, { [ATTR_GROUP]: group })
}

/** Counts that a subscription could not join, or its client gave up, and that it is built anew. */
export function countClientCrash(group: string): void {
  getInstruments().crashes.add(1, { [ATTR_GROUP]: group })
}
