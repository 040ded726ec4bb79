/**
 * All queues of a worker, and which of them are slow.
 *
 * A send that is long in coming back says nothing yet: the driver may still be
 * repeating it. But nothing more is read for its partition meanwhile, and what
 * waited behind it goes back to pending, so that no other partition runs out of
 * room.
 */
import type { Clock } from '../lifecycle/clock.ts'
import type { PausedDestination } from '../source.ts'
import type { TopicPartition } from '../transport.ts'
import type { HandEvent } from './hand.ts'
import { PartitionQueue, type PartitionQueueOptions } from './partition-queue.ts'

/** Milliseconds without an answer after which nothing more is read for a partition. */
const SLOW_MS = 500
/** Milliseconds without an answer after which readiness says so. */
const TELL_MS = 2_000

export class PartitionQueues {
  readonly #queues = new Map<string, PartitionQueue>()
  readonly #clock: Clock
  readonly #optionsFor: (where: TopicPartition) => PartitionQueueOptions

  constructor({
    clock,
    optionsFor,
  }: {
    readonly clock: Clock
    readonly optionsFor: (where: TopicPartition) => PartitionQueueOptions
  }) {
    this.#clock = clock
    this.#optionsFor = optionsFor
  }

  /** The queue to `where`. */
  of(where: TopicPartition): PartitionQueue {
    const name = nameOf(where)
    const known = this.#queues.get(name)
    if (known !== undefined) return known
    const queue = new PartitionQueue(where, this.#optionsFor(where))
    this.#queues.set(name, queue)
    return queue
  }

  /** The queues whose batch in flight has not been answered for long. */
  slow(): readonly PartitionQueue[] {
    const before = this.#clock.now() - SLOW_MS
    return [...this.#queues.values()].filter(({ sentAt }) => sentAt !== null && sentAt <= before)
  }

  /** Milliseconds until a batch in flight counts as slow; `null` when none is in flight or all are slow already. */
  nextSlowInMs(): number | null {
    const now = this.#clock.now()
    const waits = [...this.#queues.values()].flatMap(({ sentAt }) => (sentAt === null ? [] : [sentAt + SLOW_MS - now]))
    const coming = waits.filter((wait) => wait > 0)
    return coming.length === 0 ? null : Math.min(...coming)
  }

  /** What readiness should know of: partitions that have not answered for seconds. */
  silent(): readonly PausedDestination[] {
    const before = this.#clock.now() - TELL_MS
    return [...this.#queues.values()].flatMap(({ sentAt, where }) =>
      sentAt !== null && sentAt <= before
        ? [{ ...where, kind: 'outage' as const, reason: 'the broker does not acknowledge' }]
        : [],
    )
  }

  /** Empties every queue, or those to one topic, of what is not in flight. */
  clear(topic?: string): readonly HandEvent[] {
    return this.#to(topic).flatMap((queue) => queue.clear())
  }

  /** Whether nothing waits for a topic, and nothing is on its way to it. */
  isIdle(topic: string): boolean {
    return this.#to(topic).every((queue) => queue.isIdle)
  }

  /** Resolves once nothing is in flight. */
  async idle(): Promise<void> {
    await Promise.all([...this.#queues.values()].map((queue) => queue.idle()))
  }

  #to(topic?: string): readonly PartitionQueue[] {
    return [...this.#queues.values()].filter(({ where }) => topic === undefined || where.topic === topic)
  }
}

/** One string for a topic-partition. */
export function nameOf({ topic, partition }: TopicPartition): string {
  return `${topic}/${partition}`
}
