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
}

if (!parentPort) throw new Error('This file is the entry of a worker thread')
const { databaseUrl, brokers, topic, dieOn } = workerData as TestThreadData

const db = knex({ client: 'pg', connection: databaseUrl, pool: { min: 0, max: 3 } })
const kafka = createKafkaPublisher({ brokers, clientId: 'relay-thread' })
const publisher: Publisher = {
  ...kafka,
  describeTopic: (name) => kafka.describeTopic(name),
  createTopic: (name, spec) => kafka.createTopic(name, spec),
  ping: () => kafka.ping(),
  close: () => kafka.close(),
  publish: (batch, options) => {
    if (dieOn !== undefined && batch.records.some(({ headers }) => headers.event_type === dieOn)) process.exit(7)
    return kafka.publish(batch, options)
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
