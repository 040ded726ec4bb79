/** Reads topics with the bare client, by assignment and from the first offset: a second opinion on what our driver says. */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Admin, Kafka, KafkaJSProtocolError, logLevel } from 'kafkajs'
import { withCluster } from '../../../src/messaging/kafka/inside.ts'
import type { FoundRecord } from '../../../src/messaging/testing/contract-harness.ts'
import type { TopicPartition } from '../../../src/messaging/transport.ts'

/** A coordinator loads a group for as long as a slow machine takes, and not for ever. */
const LOADING_TRIES = 600
const LOADING_PAUSE_MS = 100

/** A look at the broker past our driver. */
export interface Witness extends AsyncDisposable {
  readonly admin: Admin
  /** All records of a partition, in offset order. */
  read(where: TopicPartition): Promise<readonly FoundRecord[]>
  committed(groupId: string, where: TopicPartition): Promise<bigint | null>
  close(): Promise<void>
}

interface Fetched {
  readonly offset: string
  readonly timestamp: string
  readonly key: Buffer | null
  readonly value: Buffer | null
  readonly headers: Readonly<Record<string, Buffer | string>>
}

interface FetchingBroker {
  fetch(request: object): Promise<{
    responses: readonly { partitions: readonly { messages: readonly Fetched[]; highWatermark: string }[] }[]
  }>
}

/** Connects to the cluster at `brokers`. */
export async function createWitness(brokers: readonly string[]): Promise<Witness> {
  const kafka = new Kafka({ brokers: [...brokers], clientId: 'witness', logLevel: logLevel.NOTHING })
  const { client: admin, cluster } = withCluster(kafka, () => kafka.admin())
  await admin.connect()

  /** A leader that was named a moment ago may not lead yet. */
  async function fetchFrom(where: TopicPartition, offset: bigint) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await fetchOnce(where, offset)
      } catch (error) {
        if (attempt === 50 || !(error as { retriable?: boolean }).retriable) throw error
        await new Promise((resolve) => setTimeout(resolve, 100))
        await cluster.refreshMetadata()
      }
    }
  }

  async function fetchOnce({ topic, partition }: TopicPartition, offset: bigint) {
    await cluster.addTargetTopic(topic)
    const leader = cluster
      .findTopicPartitionMetadata(topic)
      .find(({ partitionId }) => partitionId === partition)?.leader
    const { findBroker } = cluster as unknown as { findBroker(node: { nodeId?: number }): Promise<FetchingBroker> }
    const broker = await findBroker.call(cluster, { ...(leader !== undefined && { nodeId: leader }) })
    const partitions = [{ partition, fetchOffset: String(offset), maxBytes: 8_000_000 }]
    const answer = await broker.fetch({
      maxWaitTime: 100,
      minBytes: 1,
      maxBytes: 8_000_000,
      isolationLevel: 1,
      topics: [{ topic, partitions }],
    })
    return answer.responses[0]?.partitions[0]
  }

  return {
    admin,
    async read(where) {
      const found: FoundRecord[] = []
      for (let offset = 0n, end = 1n; offset < end; ) {
        const fetched = await fetchFrom(where, offset)
        end = BigInt(fetched?.highWatermark ?? 0)
        const fresh = (fetched?.messages ?? []).filter((message) => BigInt(message.offset) >= offset)
        found.push(...fresh.map(toFound))
        offset = BigInt(fresh.at(-1)?.offset ?? end) + 1n
      }
      return found
    },
    async committed(groupId, { topic, partition }) {
      const [entry] = await whileLoading(() => admin.fetchOffsets({ groupId, topics: [topic] }))
      const offset = BigInt(entry?.partitions.find((one) => one.partition === partition)?.offset ?? -1)
      return offset < 0n ? null : offset
    },
    close: () => admin.disconnect(),
    [Symbol.asyncDispose]: () => admin.disconnect(),
  }
}

/** A group that nobody has asked for yet, or whose coordinator has moved, is loaded first. */
async function whileLoading<T>(ask: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask()
    } catch (error) {
      if (tries === LOADING_TRIES || !(error instanceof KafkaJSProtocolError) || !error.retriable) throw error
      await sleep(LOADING_PAUSE_MS)
    }
  }
}

function toFound({ offset, timestamp, key, value, headers }: Fetched): FoundRecord {
  return {
    offset: BigInt(offset),
    timestamp: new Date(Number(timestamp)),
    key: key?.toString() ?? '',
    value,
    headers: Object.fromEntries(Object.entries(headers).map(([name, text]) => [name, text.toString()])),
  }
}
