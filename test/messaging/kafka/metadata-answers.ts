/** Answers to metadata requests, read and altered on their way. */

const UNKNOWN_TOPIC_OR_PARTITION = 3

/** Of a topic: its error code, the length of its name, its name; then its partitions. */
function errorCodeAt(answer: Buffer, topic: string): number {
  return answer.indexOf(topic) - 4
}

/** Whether the answer has `topic`, and no error for it. */
export function isAboutTopic(answer: Buffer, topic: string): boolean {
  return answer.includes(topic) && answer.readInt16BE(errorCodeAt(answer, topic)) === 0
}

/** The answer as a broker gives it that has not heard of `topic`. */
export function withoutTopic(answer: Buffer, topic: string): Buffer {
  const changed = Buffer.from(answer)
  changed.writeInt16BE(UNKNOWN_TOPIC_OR_PARTITION, errorCodeAt(answer, topic))
  return changed
}
