/** Answers to produce requests, read and altered on their way. */
import type { TopicPartition } from '../../../src/messaging/transport.ts'

/** In a produce answer of one partition: length, correlation, one topic's name, one partition's number; then this. */
function errorCodeAt(topic: string): number {
  return 4 + 4 + 4 + 2 + Buffer.byteLength(topic) + 4 + 4
}

/** The answer with another error code. */
export function withErrorCode(answer: Buffer, topic: string, code: number): Buffer {
  const changed = Buffer.from(answer)
  changed.writeInt16BE(code, errorCodeAt(topic))
  return changed
}

/** The answer with another offset for the batch's first record. */
export function withBaseOffset(answer: Buffer, topic: string, offset: bigint): Buffer {
  const changed = Buffer.from(answer)
  changed.writeBigInt64BE(offset, errorCodeAt(topic) + 2)
  return changed
}

/** Of each partition in an answer: its number, an error code, two offsets and a time. */
const PARTITION_BYTES = 4 + 2 + 8 + 8 + 8

/** Which partitions an answer is about: those that its request carried records for. */
export function partitionsIn(answer: Buffer): readonly TopicPartition[] {
  const found: TopicPartition[] = []
  let at = 12
  for (let topics = answer.readInt32BE(8); topics > 0; topics -= 1) {
    const end = at + 2 + answer.readInt16BE(at)
    const topic = answer.toString('utf8', at + 2, end)
    const count = answer.readInt32BE(end)
    at = end + 4
    for (let n = 0; n < count; n += 1) found.push({ topic, partition: answer.readInt32BE(at + n * PARTITION_BYTES) })
    at += count * PARTITION_BYTES
  }
  return found
}
