/** The thread of our relay in a benchmark. */
import { parentPort, workerData } from 'node:worker_threads'
import knex from 'knex'
import { runRelayWorker, workerLine } from '../src/messaging/index.ts'
import { createKafkaPublisher } from '../src/messaging/kafka/index.ts'
import { shutdownTelemetry } from '../src/service/telemetry-handle.ts'
import type { TelemetryIdentity } from '../src/service/telemetry-identity.ts'
import { flushWhenAsked } from './flush-spans.ts'

/** What the thread is told. */
export interface OurWorkerData {
  readonly databaseUrl: string
  readonly brokers: readonly string[]
  readonly topic: string
  /** Who it is, where the process has the service's preload. */
  readonly telemetry: TelemetryIdentity
}

const { databaseUrl, brokers, topic } = workerData as OurWorkerData
if (!parentPort) throw new Error('This file is the entry of a worker thread')

flushWhenAsked()
const db = knex({ client: 'pg', connection: databaseUrl, pool: { min: 1, max: 3 } })
const publisher = createKafkaPublisher({ brokers, clientId: 'bench' })
try {
  await runRelayWorker({ line: workerLine(parentPort), db, publisher, topicFor: () => topic, createTopics: null })
} finally {
  await publisher.close()
  await db.destroy()
  await shutdownTelemetry()
  parentPort.close()
}
