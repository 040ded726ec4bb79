/** A relay thread for tests: it can be told to die, or to stop answering, when it meets a certain event. */
import { parentPort, workerData } from 'node:worker_threads'
import knex from 'knex'
import type { Publisher } from '../../../src/messaging/index.ts'
import { runRelayWorker, workerLine } from '../../../src/messaging/index.ts'
import { createKafkaPublisher } from '../../../src/messaging/kafka/index.ts'

/** What the thread is told. */
export interface TestThreadData {
  readonly databaseUrl: string
  readonly brokers: readonly string[]
  readonly topic: string
  /** Events of this type end the thread at once, before they are sent. */
  readonly dieOn?: string
  /** A zero in shared memory: the first thread that finds it there ends at once when its next batch is acknowledged, before that is marked. */
  readonly dieOnceAcknowledged?: SharedArrayBuffer
}

if (!parentPort) throw new Error('This file is the entry of a worker thread')
const { databaseUrl, brokers, topic, dieOn, dieOnceAcknowledged } = workerData as TestThreadData

const db = knex({ client: 'pg', connection: databaseUrl, pool: { min: 0, max: 3 } })
const kafka = createKafkaPublisher({ brokers, clientId: 'relay-thread' })
const publisher: Publisher = {
  ...kafka,
  describeTopic: (name) => kafka.describeTopic(name),
  createTopic: (name, spec) => kafka.createTopic(name, spec),
  ping: () => kafka.ping(),
  close: () => kafka.close(),
  publish: async (batch, options) => {
    if (dieOn !== undefined && batch.records.some(({ headers }) => headers.event_type === dieOn)) process.exit(7)
    const receipt = await kafka.publish(batch, options)
    if (dieOnceAcknowledged && Atomics.exchange(new Int32Array(dieOnceAcknowledged), 0, 1) === 0) process.exit(7)
    return receipt
  },
}
try {
  await runRelayWorker({
    line: workerLine(parentPort),
    db,
    publisher,
    topicFor: () => topic,
    settings: { pollIntervalMs: 200, leaseMs: 1_000 },
  })
} finally {
  await publisher.close()
  await db.destroy()
  parentPort.close()
}
