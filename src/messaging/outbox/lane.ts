/**
 * Where an aggregate's events belong: one hash of its id gives the lane in the
 * outbox and the partition on the topic.
 *
 * The hash is the one that Java's default partitioner uses, so that a producer
 * of another language which writes to the same topic places a key alike.
 */

/**
 * How many lanes the outbox has. Changing it would move aggregates that still
 * have pending events to another lane, and so break their order.
 */
export const LANE_COUNT = 64

const SEED = 0x9747b28c
const MULTIPLIER = 0x5bd1e995

/** Kafka's murmur2 over the UTF-8 bytes of `key`, as a signed 32-bit integer. Equals Java's `Utils.murmur2`. */
export function murmur2(key: string): number {
  const bytes = Buffer.from(key, 'utf8')
  const tail = bytes.length & ~3
  let hash = SEED ^ bytes.length

  for (let at = 0; at < tail; at += 4) {
    let word = Math.imul(bytes.readInt32LE(at), MULTIPLIER)
    word ^= word >>> 24
    hash = Math.imul(hash, MULTIPLIER) ^ Math.imul(word, MULTIPLIER)
  }

  const rest = bytes.length - tail
  if (rest > 0) {
    hash = Math.imul(hash ^ bytes.readUIntLE(tail, rest), MULTIPLIER)
  }
  hash = Math.imul(hash ^ (hash >>> 13), MULTIPLIER)
  return hash ^ (hash >>> 15)
}

/** The lane of an aggregate whose id has this {@link murmur2} hash: 0 to {@link LANE_COUNT} - 1. */
export function laneOf(keyHash: number): number {
  return partitionOf(keyHash, LANE_COUNT)
}

/** The partition, of `count`, of a key with this {@link murmur2} hash; the same as Java's default partitioner chooses. */
export function partitionOf(keyHash: number, count: number): number {
  return (keyHash & 0x7fffffff) % count
}
