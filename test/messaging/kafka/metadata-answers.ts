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

/** The answer as a broker gives it that has heard of the first `count` partitions of `topic` alone. */
export function withPartitions(answer: Buffer, topic: string, count: number): Buffer {
  // Behind the name lie whether the topic is internal, and the number of its partitions.
  const countAt = answer.indexOf(topic) + Buffer.byteLength(topic) + 1
  let end = countAt + 4
  for (let partition = 0; partition < count; partition += 1) {
    // Its error, its number and its leader; then its replicas, those in sync, and those that are away.
    end += 2 + 4 + 4
    for (let list = 0; list < 3; list += 1) end += 4 + 4 * answer.readInt32BE(end)
  }
  // Asked alone, the topic is the last of the answer.
  const changed = Buffer.from(answer.subarray(0, end))
  changed.writeInt32BE(end - 4, 0)
  changed.writeInt32BE(count, countAt)
  return changed
}

/** The answer as a broker gives it that has not heard of `topic`. */
export function withoutTopic(answer: Buffer, topic: string): Buffer {
  const changed = Buffer.from(answer)
  changed.writeInt16BE(UNKNOWN_TOPIC_OR_PARTITION, errorCodeAt(answer, topic))
  return changed
}
