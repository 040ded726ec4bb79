/** The traces of batches that a consumer leaves, under the real SDK with an exporter in memory. */
import { afterAll, beforeEach, expect, test } from '@jest/globals'
import { context, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { v7 as uuidv7 } from 'uuid'
import { startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers } from '../../../src/messaging/consumer/handlers.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { setBatchTraceRatio } from '../../../src/messaging/telemetry/batch-draw.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createEffects, createSetting, fast, idOf, writeEffect } from './setting.ts'

const exporter = new InMemorySpanExporter()
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }))

beforeEach(() => {
  exporter.reset()
  setBatchTraceRatio(1)
})
afterAll(() => setBatchTraceRatio(0))

function named(word: string): ReadableSpan[] {
  return exporter.getFinishedSpans().filter(({ name }) => name.startsWith(`${word} `))
}

/** For each dedupe the batch that it links to. */
function linkedBatches(): (string | undefined)[] {
  return named('dedupe').map(({ links }) => links[0]?.context.spanId)
}

test('a batch that is applied one by one is one trace as well, failed at first, and each of its events leads to it', async () => {
  const [fine, failing] = [recordOf(0), recordOf(1)]
  let tries = 0
  await using setting = await createSetting(async (trx, event) => {
    if (event.id === idOf(failing)) tries += 1
    if (tries === 1) throw new RangeError('not in company')
    await writeEffect(trx, event)
  })

  await setting.subscriber.deliver([fine, failing])

  const [poll, ...others] = named('poll')
  expect(others).toEqual([])
  expect(poll?.parentSpanContext).toBeUndefined()
  expect(poll?.attributes).toMatchObject({ 'messaging.batch.message_count': 2, 'error.type': 'RangeError' })
  expect(poll?.status.code).toBe(SpanStatusCode.ERROR)
  // Of the attempt together one or two, and then of each by itself.
  expect(linkedBatches().length).toBeGreaterThanOrEqual(3)
  expect(new Set(linkedBatches())).toEqual(new Set([poll?.spanContext().spanId]))
  // The events' own traces stay their own.
  expect(named('process').map((span) => span.spanContext().traceId)).not.toContain(poll?.spanContext().traceId)
})

test('a single event is a batch, too', async () => {
  await using setting = await createSetting()

  await setting.subscriber.deliver([recordOf(0)])

  const [poll] = named('poll')
  expect(poll?.attributes['messaging.batch.message_count']).toBe(1)
  expect(poll?.status.code).toBe(SpanStatusCode.UNSET)
  expect(linkedBatches()).toEqual([poll?.spanContext().spanId])
})

test('over Kafka the commit of its offset is under the batch', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const topic = uniqueTopic('polled')
  const brokers = testBrokers()
  const publisher = createKafkaPublisher({ brokers, clientId: 'poll-test' })
  await using _closed = { [Symbol.asyncDispose]: () => publisher.close() }
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: 1 })
  const records = ['a', 'b', 'c'].map((key) => ({
    key,
    value: '{}',
    headers: { event_id: uuidv7(), event_type: 'OrderPlaced' },
  }))
  await publisher.publish({ topic, partition: 0, records }, { signal: new AbortController().signal })

  await using _consumer = startConsumer({
    name: topic,
    topics: [topic],
    db: database.db,
    subscriber: createKafkaSubscriber({ brokers, clientId: 'poll-test', sessionTimeoutMs: 6_000, maxWaitMs: 100 }),
    handlers: defineHandlers({ OrderPlaced: writeEffect }),
    ...fast,
  })
  await eventually('the commit of all', () => lastCommitted() === records.length, 120_000)

  const batches = new Set(named('poll').map((span) => span.spanContext().spanId))
  expect(named('commit').filter(({ parentSpanContext }) => !batches.has(parentSpanContext?.spanId ?? ''))).toEqual([])
})

/** The highest offset that a commit's span tells; 0 before there is any. */
function lastCommitted(): number {
  return Math.max(0, ...named('commit').map(({ attributes }) => Number(attributes['messaging.kafka.offset'])))
}
