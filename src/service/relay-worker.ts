/** A relay thread: publishes the lanes that the relay gives it, with a pool, a Kafka client and telemetry of its own. */
import { flushCompileCache } from 'node:module'
import { parentPort, workerData } from 'node:worker_threads'
import { runRelayWorker, workerLine } from '../messaging/index.ts'
import { createKafkaPublisher } from '../messaging/kafka/index.ts'
import { readConfig } from './config.ts'
import { createDatabase } from './database.ts'
import { logDestination } from './log-text.ts'
import { createLogger } from './logger.ts'
import { type RelayThreadData, relaySettings } from './relay-threads.ts'
import { shutdownTelemetry, watchTelemetry } from './telemetry-handle.ts'
import { topicOptions } from './topics.ts'

if (!parentPort) throw new Error('relay-worker.ts is the entry of a worker thread: start the service with main.ts')
const { telemetry } = workerData as RelayThreadData
const config = readConfig()
const logger = createLogger(
  { service: telemetry.serviceName, thread: telemetry.instance },
  config.logLevel,
  logDestination(config.logFormat),
)
watchTelemetry(['pg', 'knex'], (problem) => logger.warn({}, problem))

const { client: _client, ...kafka } = config.kafka
const db = createDatabase(config.database.connection, 'relay', logger)
const publisher = createKafkaPublisher({ ...kafka, clientId: `${telemetry.serviceName}-${telemetry.instance}`, logger })

// For the next start, where NODE_COMPILE_CACHE names a folder: a process that is killed writes nothing at its end.
flushCompileCache()

try {
  await runRelayWorker({
    line: workerLine(parentPort),
    db,
    publisher,
    ...topicOptions(config),
    settings: relaySettings,
    logger,
  })
} finally {
  await publisher.close()
  await db.destroy()
  await shutdownTelemetry()
  parentPort.close()
}
// Telemetry may have given up on a collector that is silent: its socket must not keep the thread.
process.exit()
