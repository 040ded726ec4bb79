/**
 * Where partitions begin and end. When a leader is away or is another one, the
 * client is made to find out which: kafkajs itself does that for fetches alone,
 * and otherwise when what it knows is old, too late for a partition that has not
 * begun.
 */
import type { TopicPartition } from '../transport.ts'
import { type ClusterInside, partitionEdge } from './inside.ts'

/** Asks the leaders of partitions, by one client. */
export class PartitionEdges {
  readonly #cluster: ClusterInside
  readonly #over: AbortSignal
  /** Whether the client is finding out who leads. */
  #looking = false

  /** Nothing is looked for once `over` has aborted. */
  constructor(cluster: ClusterInside, over: AbortSignal) {
    this.#cluster = cluster
    this.#over = over
  }

  /** The first offset that the broker has, or the next to be written. Rejects when the leader is away or is another one. */
  async of(where: TopicPartition, edge: 'start' | 'end'): Promise<bigint> {
    try {
      return await partitionEdge(this.#cluster, where, edge)
    } catch (error) {
      this.#lookForLeaders()
      throw error
    }
  }

  #lookForLeaders(): void {
    if (this.#looking || this.#over.aborted) return
    this.#looking = true
    void this.#cluster
      .refreshMetadata()
      // Nobody answers: the next failure asks again.
      .catch(() => {})
      .finally(() => {
        this.#looking = false
      })
  }
}
