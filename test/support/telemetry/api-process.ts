/** A process as `service/main.ts` makes it, with the API alone: started by tests with the preload, told what to do over its channel. */
import knex from 'knex'
import { startGraphQLServer } from '../../../src/graphql/server.ts'
import { defaultTopicFor, silentLogger } from '../../../src/messaging/index.ts'
import { collectMetrics, shutdownTelemetry, watchTelemetry } from '../../../src/service/telemetry-handle.ts'

const db = knex({ client: 'pg', connection: process.env.TEST_DATABASE_URL ?? '' })
const server = await startGraphQLServer({
  db,
  topicFor: defaultTopicFor(''),
  host: '127.0.0.1',
  port: 0,
  introspection: true,
  graceMs: 2_000,
  logger: silentLogger,
})
const problems: string[] = []
watchTelemetry(
  ['http', 'express', 'graphql', 'knex', 'pg', ...(process.env.TEST_EXPECTS?.split(',') ?? [])],
  (problem) => problems.push(problem),
)

process.on('message', (message) => void answer(message as string))
process.send?.({ url: server.url })

async function answer(message: string): Promise<void> {
  if (message === 'metrics') process.send?.({ metrics: await collectMetrics() })
  if (message === 'problems') process.send?.({ problems })
  if (message !== 'stop') return
  await server.stop()
  await db.destroy()
  await shutdownTelemetry()
  process.exit(0)
}
