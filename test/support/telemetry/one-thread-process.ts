/**
 * All roles in the main thread of a process, with the preload: the API, an
 * inline relay, and a consumer for each name in `TEST_CONSUMERS`. Told over its
 * channel what to do; answers each command once it is done.
 */
import { startGraphQLServer } from '../../../src/graphql/server.ts'
import type { PublishFailure } from '../../../src/messaging/errors.ts'
import { PublishError, type Publisher, type Running, startConsumer, startRelay } from '../../../src/messaging/index.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { summaryHandlers } from '../../../src/orders/summary.ts'
import { readConfig } from '../../../src/service/config.ts'
import { createDatabase } from '../../../src/service/database.ts'
import { createLogger } from '../../../src/service/logger.ts'
import { prepareSchema } from '../../../src/service/schema.ts'
import { shutdownTelemetry } from '../../../src/service/telemetry-handle.ts'
import { topicOptions } from '../../../src/service/topics.ts'

/** What the process can be told. */
export type Command = 'start relay' | 'start consumers' | 'fail the next send' | 'refuse the next send' | 'stop'

const config = readConfig()
// Failures are what its tests are about, and show in traces.
const logger = createLogger({ service: 'test', thread: 'main' }, 'silent')
await prepareSchema(config, logger)
const db = createDatabase(config.database.connection, 'api', logger)
const { brokers } = config.kafka
const topics = topicOptions(config)
const server = await startGraphQLServer({
  db,
  topicFor: topics.topicFor,
  host: '127.0.0.1',
  port: 0,
  introspection: true,
  graceMs: 2_000,
  logger,
})

const kafka = createKafkaPublisher({ brokers, clientId: 'relay', logger })
let failure: PublishFailure | null = null
const publisher: Publisher = {
  ...kafka,
  publish: async (batch, options) => {
    if (failure) {
      const error = new PublishError(batch, failure)
      failure = null
      throw error
    }
    return await kafka.publish(batch, options)
  },
}
const running: Running[] = []

const commands: Readonly<Record<Command, () => void | Promise<void>>> = {
  'start relay'() {
    running.push(startRelay({ db, publisher, ...topics, maxAttempts: 1, logger }))
  },
  'start consumers'() {
    for (const name of (process.env.TEST_CONSUMERS ?? 'orders-summary').split(',')) {
      const consumer = startConsumer({
        name,
        topics: [topics.topicFor('order')],
        topicPrefix: config.topics.prefix,
        db,
        subscriber: createKafkaSubscriber({ brokers, clientId: name, logger }),
        handlers: summaryHandlers,
        maxAttempts: 1,
        logger,
      })
      running.push(consumer)
    }
  },
  'fail the next send'() {
    failure = { kind: 'outage', outcome: 'refused', reason: 'NOT_LEADER_OR_FOLLOWER' }
  },
  'refuse the next send'() {
    failure = { kind: 'record', outcome: 'refused', reason: 'MESSAGE_TOO_LARGE' }
  },
  async stop() {
    await server.stop()
    await Promise.all(running.map((part) => part.stop()))
    await publisher.close()
    await db.destroy()
    await shutdownTelemetry()
  },
}

process.on('message', async (command: Command) => {
  await commands[command]()
  process.send?.({ done: command }, () => {
    if (command === 'stop') process.exit(0)
  })
})
// Never longer than the test.
process.on('disconnect', () => process.exit())
process.send?.({ url: server.url })
