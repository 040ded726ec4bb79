/** What Kafka knows of topics, and how they are made. Every call ends in bounded time. */
import type { Admin } from 'kafkajs'
import { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { TopicDescription, TopicSpec } from '../transport.ts'
import { closeAdmin, minInsyncReplicas, type OpenAdmin, openAdmin } from './admin-client.ts'
import { Aborted, startDeadline, unlessAborted } from './deadline.ts'
import { understand } from './failures.ts'
import { askAnyBroker, type ClusterInside, type PartitionMetadata, topicPartitions, touchBrokers } from './inside.ts'
import type { ResolvedKafkaOptions } from './options.ts'

const PING_MS = 4_000
const DESCRIBE_MS = 10_000
const CREATE_MS = 20_000
const POLL_MS = 50

/** Stands for the cluster where a failure concerns no topic. */
const WHOLE_CLUSTER = 'the cluster'

/** The administrative side of the driver. Connects at the first use, and again after a failure. */
export class Topics {
  readonly #options: ResolvedKafkaOptions
  readonly #clock: Clock
  #open: OpenAdmin | null = null

  constructor(options: ResolvedKafkaOptions, clock: Clock) {
    this.#options = options
    this.#clock = clock
  }

  /** Describes `topic`; `null` where it does not exist. Rejects with {@link PublishError}. */
  async describe(topic: string): Promise<TopicDescription | null> {
    return await this.#within(DESCRIBE_MS, topic, async ({ admin, cluster }) => {
      const partitions = await partitionsOf(cluster, topic)
      return partitions && (await describePartitions(admin, topic, partitions))
    })
  }

  /**
   * Makes `topic` unless it exists, and waits until a broker knows all of its
   * partitions, and a leader of each. One that exists keeps what it has. Rejects with
   * {@link PublishError}.
   */
  async create(topic: string, { partitionCount, replicationFactor }: TopicSpec): Promise<TopicDescription> {
    return await this.#within(CREATE_MS, topic, async ({ admin, cluster }, signal) => {
      let isMade = false
      if ((await partitionsOf(cluster, topic)) === null) {
        const request = { topic, numPartitions: partitionCount, replicationFactor: replicationFactor ?? -1 }
        isMade = await admin.createTopics({ topics: [request], waitForLeaders: false, timeout: DESCRIBE_MS })
      }
      const leastCount = isMade ? partitionCount : 1
      // kafkajs's own waiting gives up on a broker that has not heard of the topic yet. Brokers hear of it one
      // after the other, so one answer that has it says nothing of the next.
      let partitions = await partitionsOf(cluster, topic)
      while (partitions === null || partitions.length < leastCount || partitions.some(({ leader }) => leader < 0)) {
        await this.#clock.pause(POLL_MS, signal)
        signal.throwIfAborted()
        partitions = await partitionsOf(cluster, topic)
      }
      return await describePartitions(admin, topic, partitions)
    })
  }

  /** Resolves if a broker answers. Rejects with {@link PublishError}. */
  async ping(): Promise<void> {
    await this.#within(PING_MS, WHOLE_CLUSTER, ({ cluster }) => askAnyBroker(cluster))
  }

  /** Keeps the connections alive while nothing is asked. Never rejects. */
  async touch(): Promise<void> {
    if (this.#open !== null) await touchBrokers(this.#open.cluster)
  }

  /** Never rejects. */
  async close(): Promise<void> {
    const open = this.#open
    this.#open = null
    if (open !== null) await closeAdmin(open)
  }

  async #within<T>(ms: number, topic: string, work: (open: OpenAdmin, signal: AbortSignal) => Promise<T>): Promise<T> {
    using deadline = startDeadline(ms, new AbortController().signal)
    const open = this.#connect()
    try {
      await unlessAborted(open.connected, deadline.signal)
      return await unlessAborted(work(open, deadline.signal), deadline.signal)
    } catch (error) {
      const failure = understand(error)
      // A client whose connections have failed is not trusted to find back by itself.
      if (failure.kind === 'outage' && this.#open === open) {
        this.#open = null
        void closeAdmin(open)
      }
      const reason = error instanceof Aborted ? 'REQUEST_TIMED_OUT' : failure.reason
      throw new PublishError({ topic }, { kind: failure.kind, outcome: 'refused', reason, cause: failure.cause })
    }
  }

  #connect(): OpenAdmin {
    this.#open ??= openAdmin(this.#options)
    return this.#open
  }
}

async function describePartitions(
  admin: Admin,
  topic: string,
  partitions: readonly PartitionMetadata[],
): Promise<TopicDescription> {
  return {
    partitionCount: partitions.length,
    replicationFactor: Math.min(...partitions.map(({ replicas }) => replicas.length)),
    minInsyncReplicas: await minInsyncReplicas(admin, topic),
  }
}

/** What a broker knows of the partitions of `topic`; `null` where it knows of none yet. */
async function partitionsOf(cluster: ClusterInside, topic: string): Promise<readonly PartitionMetadata[] | null> {
  try {
    const partitions = await topicPartitions(cluster, topic)
    return partitions === undefined || partitions.length === 0 ? null : partitions
  } catch (error) {
    if (understand(error).reason === 'UNKNOWN_TOPIC_OR_PARTITION') return null
    throw error
  }
}
