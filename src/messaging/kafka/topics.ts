/** What Kafka knows of topics, and how they are made. Every call ends in bounded time. */
import type { Admin } from 'kafkajs'
import { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { TopicDescription, TopicSpec } from '../transport.ts'
import { createClient } from './client.ts'
import { Aborted, startDeadline, unlessAborted } from './deadline.ts'
import { understand } from './failures.ts'
import { type ClusterInside, touchBrokers, withCluster } from './inside.ts'
import { mend } from './mend.ts'
import type { ResolvedKafkaOptions } from './options.ts'
import type { Sockets } from './sockets.ts'

const PING_MS = 4_000
const DESCRIBE_MS = 10_000
const CREATE_MS = 20_000
const POLL_MS = 50

/** kafkajs's number for topics as a kind of thing that has a configuration. */
const TOPIC_RESOURCE = 2

/** Stands for the cluster where a failure concerns no topic. */
const WHOLE_CLUSTER = 'the cluster'

interface OpenAdmin {
  readonly admin: Admin
  readonly cluster: ClusterInside
  readonly sockets: Sockets
  readonly connected: Promise<void>
}

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
    return await this.#within(DESCRIBE_MS, topic, async (admin) => {
      const partitions = await partitionsOf(admin, topic)
      if (partitions === null) return null
      return {
        partitionCount: partitions.length,
        replicationFactor: Math.min(...partitions.map(({ replicas }) => replicas.length)),
        minInsyncReplicas: await minInsyncReplicas(admin, topic),
      }
    })
  }

  /** Makes `topic` unless it exists, and waits until every partition has a leader. Rejects with {@link PublishError}. */
  async create(topic: string, { partitionCount, replicationFactor }: TopicSpec): Promise<TopicDescription> {
    await this.#within(CREATE_MS, topic, async (admin, signal) => {
      if ((await partitionsOf(admin, topic)) === null) {
        const request = { topic, numPartitions: partitionCount, replicationFactor: replicationFactor ?? -1 }
        await admin.createTopics({ topics: [request], waitForLeaders: false, timeout: DESCRIBE_MS })
      }
      // kafkajs's own waiting gives up on a broker that has not heard of the topic yet.
      while (!signal.aborted) {
        const partitions = await partitionsOf(admin, topic)
        if (partitions?.every(({ leader }) => leader >= 0)) return
        await this.#clock.pause(POLL_MS, signal)
      }
    })
    const description = await this.describe(topic)
    if (description !== null) return description
    throw new PublishError({ topic }, { kind: 'destination', outcome: 'refused', reason: 'UNKNOWN_TOPIC_OR_PARTITION' })
  }

  /** Resolves if a broker answers. Rejects with {@link PublishError}. */
  async ping(): Promise<void> {
    await this.#within(PING_MS, WHOLE_CLUSTER, (admin) => admin.describeCluster())
  }

  /** Keeps the connections alive while nothing is asked. Never rejects. */
  async touch(): Promise<void> {
    if (this.#open !== null) await touchBrokers(this.#open.cluster)
  }

  /** Never rejects. */
  async close(): Promise<void> {
    const open = this.#open
    this.#open = null
    await disconnect(open)
  }

  async #within<T>(ms: number, topic: string, work: (admin: Admin, signal: AbortSignal) => Promise<T>): Promise<T> {
    using deadline = startDeadline(ms, new AbortController().signal)
    const open = this.#connect()
    try {
      await unlessAborted(open.connected, deadline.signal)
      return await unlessAborted(work(open.admin, deadline.signal), deadline.signal)
    } catch (error) {
      const failure = understand(error)
      // A client whose connections have failed is not trusted to find back by itself.
      if (failure.kind === 'outage' && this.#open === open) {
        this.#open = null
        void disconnect(open)
      }
      const reason = error instanceof Aborted ? 'REQUEST_TIMED_OUT' : failure.reason
      throw new PublishError({ topic }, { kind: failure.kind, outcome: 'refused', reason, cause: failure.cause })
    }
  }

  #connect(): OpenAdmin {
    if (this.#open === null) {
      const { kafka, sockets } = createClient(this.#options)
      const { client, cluster } = withCluster(kafka, () => kafka.admin())
      mend(cluster)
      this.#open = { admin: client, cluster, sockets, connected: client.connect() }
    }
    return this.#open
  }
}

async function partitionsOf(admin: Admin, topic: string) {
  try {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics.find(({ name }) => name === topic)?.partitions ?? null
  } catch (error) {
    if (understand(error).reason === 'UNKNOWN_TOPIC_OR_PARTITION') return null
    throw error
  }
}

/** `null` where the broker does not let us see it; whoever may write to a topic may not always read its settings. */
async function minInsyncReplicas(admin: Admin, topic: string): Promise<number | null> {
  const name = 'min.insync.replicas'
  try {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: TOPIC_RESOURCE, name: topic, configNames: [name] }],
    })
    const value = resources[0]?.configEntries.find(({ configName }) => configName === name)?.configValue
    return value === undefined ? null : Number(value)
  } catch {
    return null
  }
}

async function disconnect(open: OpenAdmin | null): Promise<void> {
  if (open === null) return
  const timer = setTimeout(() => open.sockets.cutOff(), PING_MS)
  await open.connected.catch(() => {})
  await open.admin.disconnect().catch(() => {})
  clearTimeout(timer)
  open.sockets.cutOff()
}
