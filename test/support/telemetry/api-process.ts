/** A process with the API alone, started by tests with the preload and told over its channel what to do. */
import knex from 'knex'
import { startGraphQLServer } from '../../../src/graphql/server.ts'
import { defaultTopicFor, silentLogger } from '../../../src/messaging/index.ts'
import { shutdownTelemetry, watchTelemetry } from '../../../src/service/telemetry-handle.ts'

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

const expected = ['http', 'express', 'graphql', 'knex', 'pg', ...(process.env.TEST_EXPECTS?.split(',') ?? [])]
const problems: string[] = []
let wanted = Number.POSITIVE_INFINITY
const tell = () => {
  if (problems.length >= wanted) process.send?.({ problems })
}
watchTelemetry(expected, (problem) => {
  problems.push(problem)
  tell()
})

process.on('message', (message: { kind: 'problems'; count: number } | { kind: 'stop' }) => {
  if (message.kind === 'stop') {
    void stop()
    return
  }
  wanted = message.count
  tell()
})
process.send?.({ url: server.url })

async function stop(): Promise<void> {
  await server.stop()
  await db.destroy()
  await shutdownTelemetry()
  process.exit(0)
}
