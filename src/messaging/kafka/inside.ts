/**
 * The one place that reaches into kafkajs, which is pinned to the version that
 * this was written for; a different one fails here, loudly, at start.
 *
 * kafkajs has no public door to what correctness needs: the end offset of one
 * partition, the count that its metadata knows, a way to keep a quiet
 * connection alive, and to its faults (see `mend.ts`). A client's cluster
 * object has all of them. Only the clients made here are touched; others in
 * the same process keep kafkajs as it is.
 */
import type { IHeaders, Kafka } from 'kafkajs'

/** The protocol's numbers. */
const READ_UNCOMMITTED = 0
const READ_COMMITTED = 1
const LATEST = -1

/** Milliseconds that a broker may wait for the first record. */
const FETCH_WAIT_MS = 500
const FETCH_BYTES = 4_194_304

/** What the metadata says of a partition; `leader` is -1 while it has none. */
export interface PartitionMetadata {
  readonly partitionId: number
  readonly leader: number
  readonly replicas: readonly number[]
  /** Those of `replicas` that have all that the leader has acknowledged. */
  readonly isr: readonly number[]
}

/** A record as a fetch brings it. */
export interface FetchedMessage {
  readonly offset: string
  readonly headers?: IHeaders
  readonly isControlRecord: boolean
}

/** What a fetch says of one partition. */
interface FetchedPartition {
  readonly messages: readonly FetchedMessage[]
  /** What lies below is settled: no transaction is open there. */
  readonly lastStableOffset: string
}

/** A request to join a group; without `memberId` the coordinator gives one. */
export interface JoinInside {
  readonly groupId: string
  readonly memberId: string
}

/** One broker's connections. */
export interface BrokerInside {
  joinGroup(request: JoinInside): Promise<unknown>
  syncGroup(request: object): Promise<unknown>
  leaveGroup(request: { groupId: string; memberId: string }): Promise<unknown>
  isConnected(): boolean
  apiVersions(): Promise<unknown>
  /** Rejects where one of `topics` is not known to this broker. */
  metadata(topics: readonly string[]): Promise<{
    readonly topicMetadata: readonly { topic: string; partitionMetadata: readonly PartitionMetadata[] }[]
  }>
  offsetFetch(request: {
    groupId: string
    topics: readonly { topic: string; partitions: readonly { partition: number }[] }[]
  }): Promise<{ responses: readonly { partitions: readonly { partition: number; offset: string }[] }[] }>
  listOffsets(request: {
    isolationLevel: number
    topics: readonly { topic: string; partitions: readonly { partition: number; timestamp: number }[] }[]
  }): Promise<{ responses: readonly { partitions: readonly { partition: number; offset: string }[] }[] }>
  fetch(request: {
    isolationLevel: number
    maxWaitTime: number
    minBytes: number
    maxBytes: number
    topics: readonly {
      topic: string
      partitions: readonly { partition: number; fetchOffset: string; maxBytes: number }[]
    }[]
  }): Promise<{ responses: readonly { partitions: readonly FetchedPartition[] }[] }>
}

/** A request on its way to a connection. */
export interface RequestInside {
  readonly request: { readonly apiKey: number; readonly apiName: string }
  readonly response: { decode(data: unknown): Promise<unknown>; parse(data: unknown): Promise<unknown> }
}

/** The requests of one connection. */
export interface RequestQueueInside {
  readonly inflight: Map<number, { sentAt: number; readonly requestTimeout: number; timeoutRequest(): void }>
  readonly pending: readonly unknown[]
  readonly requestTimeout: number
  requestTimeoutIntervalId: NodeJS.Timeout | undefined
  throttledUntil: number
  throttleCheckTimeoutId: NodeJS.Timeout | null
  isConnected(): boolean
  destroy(): void
  checkPendingRequests(): void
  sendSocketRequest(request: { readonly entry: { readonly apiKey: number }; rejected(error: unknown): void }): void
  scheduleRequestTimeoutCheck(): void
  scheduleCheckPendingRequests(): void
}

/** The connections to one broker. */
export interface ConnectionPoolInside {
  readonly pool: readonly { readonly requestQueue: RequestQueueInside }[]
  send(request: RequestInside): Promise<unknown>
}

/** A client's view of the cluster. */
export interface ClusterInside {
  readonly connectionPoolBuilder: { build(destination?: object): Promise<ConnectionPoolInside> }
  readonly brokerPool: {
    readonly brokers: Readonly<Record<string, BrokerInside>>
    readonly seedBroker?: BrokerInside
    findConnectedBroker(): Promise<BrokerInside>
  }
  addTargetTopic(topic: string): Promise<void>
  refreshMetadata(): Promise<void>
  /** What this client takes for committed, by topic and partition. kafkajs asks the broker for whatever is not in it. */
  committedOffsets(group: { groupId: string }): Record<string, Record<number, string>>
  findGroupCoordinator: (group: { groupId: string }) => Promise<BrokerInside>
  findBroker(node: { nodeId: number }): Promise<BrokerInside>
  findTopicPartitionMetadata(topic: string): readonly PartitionMetadata[]
  fetchTopicsOffset(
    topics: readonly {
      topic: string
      partitions: readonly { partition: number }[]
      fromBeginning: boolean
    }[],
  ): Promise<readonly { partitions: readonly { partition: number; offset: string }[] }[]>
}

type CreateCluster = (options: object) => ClusterInside

/** Makes a client with `create` and hands back the cluster object that it works with. */
export function withCluster<Client>(kafka: Kafka, create: () => Client): { client: Client; cluster: ClusterInside } {
  const inside = kafka as unknown as Record<symbol, CreateCluster>
  const door = Object.getOwnPropertySymbols(kafka).find(
    ({ description }) => description === 'private:Kafka:createCluster',
  )
  const original = door && inside[door]
  if (!door || !original) throw new Error('This release works with kafkajs 2.2.4; the one installed is another')

  let cluster: ClusterInside | null = null
  inside[door] = (options) => {
    cluster = original(options)
    return cluster
  }
  try {
    const client = create()
    if (cluster === null) throw new Error('kafkajs made a client without a cluster')
    return { client, cluster }
  } finally {
    inside[door] = original
  }
}

/** The offset at one end of a partition, as consumers see it: the first that the broker still has, or the first that cannot be read yet. */
export async function partitionEdge(
  cluster: ClusterInside,
  { topic, partition }: { topic: string; partition: number },
  edge: 'start' | 'end',
): Promise<bigint> {
  const answers = await cluster.fetchTopicsOffset([
    { topic, partitions: [{ partition }], fromBeginning: edge === 'start' },
  ])
  const offset = answers[0]?.partitions.find((answer) => answer.partition === partition)?.offset
  if (offset === undefined) throw new Error(`Kafka did not tell the ${edge} of ${topic}, partition ${partition}`)
  return BigInt(offset)
}

/**
 * The first offset whose record is not older than `time`, or the next to be
 * written; `null` where no record is that young. Of everything that is
 * replicated, also behind a transaction that is open: `partitionEdge` ends there.
 */
export async function replicatedOffset(
  cluster: ClusterInside,
  { topic, partition }: { topic: string; partition: number },
  time: Date | 'end',
): Promise<bigint | null> {
  const broker = await leaderOf(cluster, { topic, partition })
  const timestamp = time === 'end' ? LATEST : time.getTime()
  const { responses } = await broker.listOffsets({
    isolationLevel: READ_UNCOMMITTED,
    topics: [{ topic, partitions: [{ partition, timestamp }] }],
  })
  const offset = responses[0]?.partitions.find((answer) => answer.partition === partition)?.offset
  if (offset === undefined) throw new Error(`Kafka did not tell an offset of ${topic}, partition ${partition}`)
  return BigInt(offset) < 0n ? null : BigInt(offset)
}

/**
 * Fetches some records from `offset` on, without those of aborted transactions if `cluster` is mended,
 * and the offset to go on from: `offset` itself where nothing can be read yet.
 */
export async function fetchCommitted(
  cluster: ClusterInside,
  { topic, partition }: { topic: string; partition: number },
  offset: bigint,
): Promise<{ readonly messages: readonly FetchedMessage[]; readonly nextOffset: bigint }> {
  const broker = await leaderOf(cluster, { topic, partition })
  const { responses } = await broker.fetch({
    isolationLevel: READ_COMMITTED,
    maxWaitTime: FETCH_WAIT_MS,
    minBytes: 1,
    maxBytes: FETCH_BYTES,
    topics: [{ topic, partitions: [{ partition, fetchOffset: String(offset), maxBytes: FETCH_BYTES }] }],
  })
  const [fetched] = responses[0]?.partitions ?? []
  // A broker that slows us down answers with nothing.
  if (fetched === undefined) return { messages: [], nextOffset: offset }
  const { messages, lastStableOffset } = fetched
  const fresh = messages.filter((message) => BigInt(message.offset) >= offset)
  const last = fresh.at(-1)
  // What was compacted away leaves offsets without a record.
  if (last === undefined) return { messages: [], nextOffset: BigInt(lastStableOffset) > offset ? offset + 1n : offset }
  return {
    messages: fresh.filter(({ isControlRecord }) => !isControlRecord),
    nextOffset: BigInt(last.offset) + 1n,
  }
}

/**
 * The partitions of `topic` as one broker knows them now. kafkajs's admin has a
 * call for it that may go by what it was told before, and answers `null`, which
 * it then reads, where all brokers refuse.
 */
export async function topicPartitions(
  { brokerPool }: ClusterInside,
  topic: string,
): Promise<readonly PartitionMetadata[] | undefined> {
  const broker = await brokerPool.findConnectedBroker()
  const { topicMetadata } = await broker.metadata([topic])
  return topicMetadata.find((known) => known.topic === topic)?.partitionMetadata
}

/** Resolves if a broker answers. */
export async function askAnyBroker({ brokerPool }: ClusterInside): Promise<void> {
  const broker = await brokerPool.findConnectedBroker()
  await broker.metadata([])
}

async function leaderOf(
  cluster: ClusterInside,
  { topic, partition }: { topic: string; partition: number },
): Promise<BrokerInside> {
  const nodeId = cluster.findTopicPartitionMetadata(topic).find(({ partitionId }) => partitionId === partition)?.leader
  if (nodeId === undefined) throw new Error(`Kafka did not tell the leader of ${topic}, partition ${partition}`)
  return await cluster.findBroker({ nodeId })
}

/** What `groupId` has committed for a partition; `null` if nothing. */
export async function committedOffset(
  cluster: ClusterInside,
  groupId: string,
  { topic, partition }: { topic: string; partition: number },
): Promise<bigint | null> {
  const coordinator = await cluster.findGroupCoordinator({ groupId })
  const { responses } = await coordinator.offsetFetch({ groupId, topics: [{ topic, partitions: [{ partition }] }] })
  const offset = responses[0]?.partitions.find((answer) => answer.partition === partition)?.offset
  if (offset === undefined)
    throw new Error(`Kafka did not tell the committed offset of ${topic}, partition ${partition}`)
  return BigInt(offset) < 0n ? null : BigInt(offset)
}

/** Sends something small to every broker that `cluster` is connected to. Never rejects: a dead one shows at the next use. */
export async function touchBrokers({ brokerPool }: ClusterInside): Promise<void> {
  const brokers = new Set(Object.values(brokerPool.brokers))
  if (brokerPool.seedBroker) brokers.add(brokerPool.seedBroker)
  await Promise.allSettled([...brokers].filter((broker) => broker.isConnected()).map((broker) => broker.apiVersions()))
}
