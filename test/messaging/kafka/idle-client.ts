/** A process with a publisher and a subscriber that have nothing to do, ours or those of the bare client. Prints what that cost. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Kafka, logLevel } from 'kafkajs'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'

const [whose = '', broker = '', topic = '', idleMs = '5000'] = process.argv.slice(2)
const PARTITIONS = [0, 1, 2, 3, 4, 5, 6, 7]
const warnings: string[] = []
process.on('warning', ({ name }) => warnings.push(name))

const stop = await (whose === 'ours' ? startOurs() : startBare())
const before = process.cpuUsage()
await sleep(Number(idleMs))
const { user, system } = process.cpuUsage(before)
await stop()
process.stdout.write(JSON.stringify({ cpuMs: (user + system) / 1_000, warnings }))

/** Each has been used before it rests. Resolves to what ends both. */
async function startOurs(): Promise<() => Promise<void>> {
  const options = { brokers: [broker], clientId: 'idle' }
  const publisher = createKafkaPublisher(options)
  await publisher.createTopic(topic, { partitionCount: PARTITIONS.length, replicationFactor: null })
  const { signal } = new AbortController()
  const records = [{ key: 'k', value: 'v', headers: {} }]
  await Promise.all(PARTITIONS.map((partition) => publisher.publish({ topic, partition, records }, { signal })))

  const delivered = countDown(PARTITIONS.length)
  const subscription = createKafkaSubscriber(options).subscribe({
    groupId: topic,
    topics: [topic],
    startOffset: async () => 'earliest',
    async deliver(batch) {
      delivered.note(batch.records.length)
      return { nextOffset: (batch.records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
    },
  })
  await delivered.all
  return async () => {
    await subscription.stop()
    await publisher.close()
  }
}

async function startBare(): Promise<() => Promise<void>> {
  const kafka = new Kafka({ brokers: [broker], clientId: 'idle', logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS.length }], waitForLeaders: true })
  await admin.disconnect()
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 })
  await producer.connect()
  await producer.send({ topic, messages: PARTITIONS.map((partition) => ({ partition, key: 'k', value: 'v' })) })

  const delivered = countDown(PARTITIONS.length)
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async () => delivered.note(1) })
  await delivered.all
  return async () => {
    await consumer.disconnect()
    await producer.disconnect()
  }
}

function countDown(count: number): { note(records: number): void; readonly all: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>()
  let left = count
  return {
    all: promise,
    note(records) {
      left -= records
      if (left <= 0) resolve()
    },
  }
}
