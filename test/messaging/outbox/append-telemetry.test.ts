/** What an append leaves in traces and metrics, under the real SDK with exporters in memory. */
import { beforeEach, expect, test } from '@jest/globals'
import { context, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'

const exporter = new InMemorySpanExporter()
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }))

const points = readMetrics()

beforeEach(() => exporter.reset())

/** Events counted as enqueued so far, by topic. */
async function enqueued(): Promise<Record<string, number>> {
  const counts = await points('outbox.enqueued.messages')
  return Object.fromEntries(
    counts.map(({ attributes, value }) => [String(attributes['messaging.destination.name']), Number(value)]),
  )
}

test('stores the context of its create span, a child of the span that the append ran in', async () => {
  await using database = await createTestDatabase()
  const tracer = trace.getTracer('test')

  const [envelope] = await tracer.startActiveSpan('mutation', async (span) => {
    const appended = await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'o-1')]))
    span.end()
    return appended
  })

  const [create, mutation] = exporter.getFinishedSpans()
  const { traceId, spanId } = create?.spanContext() ?? {}
  expect(create?.name).toBe('create order.events')
  expect(create?.parentSpanContext?.spanId).toBe(mutation?.spanContext().spanId)
  expect(create?.attributes['messaging.message.id']).toBe(envelope?.id)
  expect(await database.db('outbox').pluck('traceparent')).toEqual([`00-${traceId}-${spanId}-01`])
  expect(envelope?.trace?.traceparent).toBe(`00-${traceId}-${spanId}-01`)
})

test('fails the create spans of events that could not be stored', async () => {
  await using database = await createTestDatabase()
  const events = [orderEvent('OrderPlaced'), orderEvent('OrderPlaced')]

  const refused = inTransaction(database.db, (trx) => appendToOutbox(trx, events, { maxEventBytes: 1 }))

  await expect(refused).rejects.toMatchObject({ code: 'MESSAGING_INVALID_EVENT' })
  expect(exporter.getFinishedSpans().map(({ status }) => status.code)).toEqual([
    SpanStatusCode.ERROR,
    SpanStatusCode.ERROR,
  ])
})

test('counts events after the commit, by topic, and none that were rolled back', async () => {
  await using database = await createTestDatabase()
  const topicFor = defaultTopicFor('shop.')
  let duringTransaction = {}

  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('OrderPlaced'), orderEvent('OrderPlaced')], { topicFor })
    await inTransaction(trx, async (savepoint) => {
      await appendToOutbox(savepoint, [orderEvent('OrderShipped')], { topicFor })
      throw new Error('back to the savepoint')
    }).catch(() => {})
    duringTransaction = await enqueued()
  })

  expect(duringTransaction).not.toHaveProperty(['shop.order.events'])
  expect(await enqueued()).toMatchObject({ 'shop.order.events': 2 })
})
