/**
 * Traces and metrics in a service of one's own.
 *
 * Appends one event and prints what the SDK has got of it. In a service your
 * exporters take the place of those in memory. Needs a Postgres, `DATABASE_URL`.
 *
 * In a project of your own its imports are `graphql-outbox` and `graphql-outbox/kafka`.
 */
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { NodeSDK } from '@opentelemetry/sdk-node'
import { InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace'
import knex from 'knex'
import {
  appendToOutbox,
  inTransaction,
  messagingMigrations,
  migrate,
  setOutboxName,
  setWaitSpans,
  silentLogger,
  startOutboxGauges,
} from '../src/messaging/index.ts'

const spans = new InMemorySpanExporter()
const numbers = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const reader = new PeriodicExportingMetricReader({ exporter: numbers })
const sdk = new NodeSDK({ spanProcessors: [new SimpleSpanProcessor({ exporter: spans })], metricReaders: [reader] })
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })

// 1. The SDK first: the library finds it through @opentelemetry/api. In each thread, relay workers included.
sdk.start()
setOutboxName('billing') // tells this outbox from others, in spans and metrics
setWaitSpans(true) // one more span an event, in relay threads: how long it waited

// 2. Backlog, age, held and parked keys, read from the database every 15 s. One in a process with a relay.
await migrate(db, messagingMigrations, 'messaging')
const gauges = startOutboxGauges({ db, logger: silentLogger })

// 3. Everything else is recorded by itself.
const event = { type: 'InvoiceSent', aggregate: { type: 'invoice', id: 'i-1' }, payload: {} }
await inTransaction(db, (trx) => appendToOutbox(trx, [event]))

await gauges.stop()
await reader.forceFlush()
console.log(
  'spans:',
  spans
    .getFinishedSpans()
    .map(({ name }) => name)
    .join(', '),
)
const recorded = numbers.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics }) => metrics))
console.log('metrics:', [...new Set(recorded.map(({ descriptor }) => descriptor.name))].sort().join(', '))
await sdk.shutdown()
await db.destroy()
