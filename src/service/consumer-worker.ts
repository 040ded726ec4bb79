/** The consumer's thread: keeps the customers' summaries, with a pool, a Kafka client and telemetry of its own. */
import { flushCompileCache } from 'node:module'
import { parentPort } from 'node:worker_threads'
import { startConsumer } from '../messaging/index.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../messaging/kafka/index.ts'
import { ORDER_AGGREGATE } from '../orders/events.ts'
import { summaryHandlers } from '../orders/summary.ts'
import { readConfig } from './config.ts'
import type { FromConsumerThread, ToConsumerThread } from './consumer-protocol.ts'
import { CONSUMER_GRACE_MS } from './consumer-thread.ts'
import { createDatabase } from './database.ts'
import { ensureTopic } from './ensure-topic.ts'
import { logDestination } from './log-text.ts'
import { createLogger } from './logger.ts'
import { shutdownTelemetry, watchTelemetry } from './telemetry-handle.ts'
import { topicOptions } from './topics.ts'

/** The consumer's name: with the prefix in front, its group id and what its memory stands under. */
const NAME = 'orders-summary'
/** Milliseconds between two reports to the main thread. */
const REPORT_MS = 1_000
/** The least that brokers take by default: so long nobody reads the partitions of a consumer that was killed. */
const SESSION_MS = 6_000

if (!parentPort) throw new Error('consumer-worker.ts is the entry of a worker thread: start the service with main.ts')
const port = parentPort
const config = readConfig()
const logger = createLogger({ service: NAME, thread: 'consumer' }, config.logLevel, logDestination(config.logFormat))
watchTelemetry(['pg', 'knex'], (problem) => logger.warn({}, problem))

const { client: _client, ...kafka } = config.kafka
const { topicFor, createTopics } = topicOptions(config)
const topic = topicFor(ORDER_AGGREGATE)
const db = createDatabase(config.database.connection, 'consumer', logger)
const consumer = startConsumer({
  name: NAME,
  topics: [topic],
  topicPrefix: config.topics.prefix,
  db,
  subscriber: createKafkaSubscriber({ ...kafka, clientId: NAME, sessionTimeoutMs: SESSION_MS, logger }),
  handlers: summaryHandlers,
  graceMs: CONSUMER_GRACE_MS,
  logger,
})

const report = () => {
  const { ready, problems } = consumer.status()
  port.postMessage({ kind: 'status', status: { ready, problems } } satisfies FromConsumerThread)
}
const stop = new AbortController()
const publisher = createKafkaPublisher({ ...kafka, clientId: `${NAME}-topics`, logger })
const topicMade = ensureTopic(topic, createTopics, { publisher, logger, signal: stop.signal }).finally(() =>
  publisher.close(),
)

const reports = setInterval(report, REPORT_MS)
port.on('message', (message: ToConsumerThread) => {
  if (message.kind !== 'drain') return
  stop.abort()
  // A failure shows in `done`, which is awaited below.
  void consumer.stop().catch(() => {})
})
report()
// For the next start, where NODE_COMPILE_CACHE names a folder: a process that is killed writes nothing at its end.
flushCompileCache()

try {
  await consumer.done
} finally {
  clearInterval(reports)
  stop.abort()
  await topicMade
  await db.destroy()
  await shutdownTelemetry()
  port.close()
}
// Telemetry may have given up on a collector that is silent: its socket must not keep the thread.
process.exit()
