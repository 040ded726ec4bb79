/** Answers to produce requests of one topic-partition, altered on their way. */

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
