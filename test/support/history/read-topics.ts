/**
 * Reads topics whole: every partition from its first offset to the end that it
 * had at the call. A client of its own, so that what the product's driver
 * believes plays no part.
 */
import { randomUUID } from 'node:crypto'
import { type Consumer, type EachBatchPayload, Kafka, type KafkaMessage, logLevel } from 'kafkajs'
import type { ObservedRecord } from '../../../src/messaging/testing/history/evidence.ts'
import { observe } from '../../../src/messaging/testing/history/shadow.ts'
import type { IncomingRecord } from '../../../src/messaging/transport.ts'

export interface TopicReading {
  readonly brokers: readonly string[]
  readonly topics: readonly string[]
  /** Milliseconds after which the reading fails. @defaultValue 180_000 */
  readonly withinMs?: number
}

/** All records of `topics` in offset order within a partition; a topic that does not exist has none. */
export async function readTopics({ brokers, topics, withinMs = 180_000 }: TopicReading): Promise<ObservedRecord[]> {
  const kafka = new Kafka({ clientId: 'history', brokers: [...brokers], logLevel: logLevel.NOTHING })
  const ends = await endsOf(kafka, topics)
  const records: ObservedRecord[] = []
  if (ends.size === 0) return records

  const consumer = kafka.consumer({ groupId: `history-${randomUUID()}`, maxWaitTimeInMs: 100, maxBytes: 52_428_800 })
  try {
    await readUntil(consumer, { ends, records, withinMs })
  } finally {
    await consumer.disconnect()
  }
  return records.sort((a, b) => (a.offset < b.offset ? -1 : 1))
}

/** Each partition's end, of those that have any record. */
async function endsOf(kafka: Kafka, topics: readonly string[]): Promise<Map<string, bigint>> {
  const admin = kafka.admin()
  await admin.connect()
  try {
    const existing = new Set(await admin.listTopics())
    const ends = new Map<string, bigint>()
    for (const topic of topics.filter((each) => existing.has(each))) {
      for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
        if (BigInt(high) > BigInt(low)) ends.set(`${topic}/${partition}`, BigInt(high))
      }
    }
    return ends
  } finally {
    await admin.disconnect()
  }
}

async function readUntil(
  consumer: Consumer,
  { ends, records, withinMs }: { ends: Map<string, bigint>; records: ObservedRecord[]; withinMs: number },
): Promise<void> {
  const read = Promise.withResolvers<void>()
  const timer = setTimeout(() => {
    read.reject(new Error(`${ends.size} partitions could not be read to their end in ${withinMs} ms`))
  }, withinMs)
  // A crash that kafkajs restarts from, such as of a coordinator that is still loading, only costs time.
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) read.reject(payload.error)
  })
  const last = new Map(ends)
  const topics = [...new Set([...ends.keys()].map((name) => name.slice(0, name.lastIndexOf('/'))))]
  const seen = new Map<string, bigint>()

  try {
    await Promise.race([read.promise, begin()])
    await read.promise
  } finally {
    clearTimeout(timer)
  }

  async function begin(): Promise<void> {
    await consumer.connect()
    await consumer.subscribe({ topics, fromBeginning: true })
    await consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 1, eachBatch })
  }

  // Nothing is committed, so a rebalance begins again at the first offset: what was seen is left out.
  async function eachBatch({ batch: { topic, partition, messages } }: EachBatchPayload): Promise<void> {
    const name = `${topic}/${partition}`
    for (const message of messages) {
      const offset = BigInt(message.offset)
      if (offset <= (seen.get(name) ?? -1n) || offset >= (last.get(name) ?? 0n)) continue
      seen.set(name, offset)
      records.push(observe({ topic, partition }, toIncoming(message)))
    }
    const end = ends.get(name)
    if (end !== undefined && (seen.get(name) ?? -1n) >= end - 1n) ends.delete(name)
    if (ends.size === 0) read.resolve()
  }
}

function toIncoming(message: KafkaMessage): IncomingRecord {
  const headers = Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)])
  return {
    offset: BigInt(message.offset),
    timestamp: new Date(Number(message.timestamp)),
    key: message.key,
    value: message.value,
    headers: Object.fromEntries(headers),
  }
}
