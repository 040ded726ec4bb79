/** A process with the API alone, started by tests with the preload and told over its channel what to do. */
import { subscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { logs } from '@opentelemetry/api'
import knex from 'knex'
import { startGraphQLServer } from '../../../src/graphql/server.ts'
import { defaultTopicFor, silentLogger } from '../../../src/messaging/index.ts'
import { collectMetrics, shutdownTelemetry, watchTelemetry } from '../../../src/service/telemetry-handle.ts'

/** Each port that this process has tried to connect to. */
const triedPorts = new Set<number>()
subscribe('net.client.socket', (message) => {
  const { socket } = message as { socket: Socket }
  socket.on('connectionAttempt', (_address, port) => triedPorts.add(port))
})
// Goes nowhere: the service's log is its own business.
logs.getLogger('test').emit({ body: 'A record of a log' })

const { TEST_DATABASE_URL = '', TEST_CONNECTIONS = '10' } = process.env
const db = knex({ client: 'pg', connection: TEST_DATABASE_URL, pool: { min: 0, max: Number(TEST_CONNECTIONS) } })
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

/** What tests ask of it. */
export type Question = { kind: 'problems'; count: number } | { kind: 'metrics' } | { kind: 'stop' }

process.on('message', (message: Question) => {
  switch (message.kind) {
    case 'problems':
      wanted = message.count
      tell()
      return
    case 'metrics':
      void collectMetrics().then((metrics) => process.send?.({ metrics }))
      return
    case 'stop':
      void stop()
  }
})
process.send?.({ url: server.url })

async function stop(): Promise<void> {
  await server.stop()
  await db.destroy()
  await shutdownTelemetry()
  process.send?.({ triedPorts: [...triedPorts] }, () => process.exit(0))
}
