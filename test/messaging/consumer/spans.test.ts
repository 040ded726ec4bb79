/** Which spans a delivery leaves, under the real SDK with an exporter in memory. */
import { beforeEach, expect, test } from '@jest/globals'
import { context, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { recordOf } from './scripted-subscriber.ts'
import { createSetting, idOf, writeEffect } from './setting.ts'

const exporter = new InMemorySpanExporter()
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }))

beforeEach(() => exporter.reset())

const traceOf = (n: number) => n.toString(16).padStart(32, '0')
const traced = (offset: number, given: Parameters<typeof recordOf>[1] = {}) =>
  recordOf(offset, { ...given, headers: { traceparent: `00-${traceOf(offset + 1)}-b7ad6b7169203331-01` } })

function spansOf(record: ReturnType<typeof recordOf>): ReadableSpan[] {
  const traceId = traceOf(Number(record.offset) + 1)
  return exporter.getFinishedSpans().filter((span) => span.spanContext().traceId === traceId)
}

function summary(record: ReturnType<typeof recordOf>) {
  return spansOf(record).map(({ name, attributes, status }) => [
    name,
    attributes['outbox.result'] ?? attributes['outbox.dedupe.result'],
    status.code === SpanStatusCode.ERROR,
  ])
}

test('PC-72: each event of a batch has its own process and dedupe in its own trace, and the handler runs inside', async () => {
  const tracer = trace.getTracer('handler')
  await using setting = await createSetting(async (trx, event) => {
    await tracer.startActiveSpan('handler', async (span) => {
      await writeEffect(trx, event)
      span.end()
    })
  })
  const records = [traced(0), traced(1), traced(2)]

  await setting.subscriber.deliver(records)

  for (const record of records) {
    const spans = spansOf(record)
    const byName = new Map(spans.map((span) => [span.name, span]))
    expect(summary(record)).toEqual([
      ['handler', undefined, false],
      ['dedupe processed_events', 'new', false],
      ['process order.events', 'processed', false],
    ])
    expect(byName.get('handler')?.parentSpanContext?.spanId).toBe(
      byName.get('dedupe processed_events')?.spanContext().spanId,
    )
    expect(byName.get('process order.events')?.attributes['messaging.message.id']).toBe(idOf(record))
  }
})

test('a redelivery is told as a duplicate in the same trace', async () => {
  await using setting = await createSetting()
  const records = [traced(0), traced(1)]
  await setting.subscriber.deliver(records)
  exporter.reset()

  await setting.subscriber.deliver(records)
  await setting.subscriber.deliver(records.slice(0, 1))

  const duplicate = [
    ['dedupe processed_events', 'duplicate', false],
    ['process order.events', 'duplicate', false],
  ]
  expect(summary(records[0] ?? traced(0))).toEqual([...duplicate, ...duplicate])
  expect(summary(records[1] ?? traced(1))).toEqual(duplicate)
})

test('an event that fails is an error in its own trace alone, and its neighbours say processed once they are', async () => {
  const [neighbour, failing] = [traced(0), traced(1)]
  await using setting = await createSetting(
    async (trx, event) => {
      if (event.id === idOf(failing)) throw new RangeError('secret')
      await writeEffect(trx, event)
    },
    { maxAttempts: 1 },
  )

  await setting.subscriber.deliverAll([neighbour, failing])

  const results = summary(neighbour).filter(([name]) => name === 'process order.events')
  expect(results.filter(([, result]) => result === 'processed')).toHaveLength(1)
  expect(results.some(([, , failed]) => failed)).toBe(false)
  const last = spansOf(failing).findLast((span) => span.name === 'process order.events')
  expect(last?.attributes).toMatchObject({ 'outbox.result': 'dead_lettered', 'error.type': 'RangeError' })
  const create = spansOf(failing).find((span) => span.name === 'create order.events.summary.dlq')
  expect(create?.parentSpanContext?.spanId).toBe(last?.spanContext().spanId)
  expect(
    JSON.stringify(exporter.getFinishedSpans().map(({ attributes, events }) => [attributes, events])),
  ).not.toContain('secret')
})
