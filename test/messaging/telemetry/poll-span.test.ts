/** The traces of a consumer's batches, under the real SDK with an exporter in memory. */
import { beforeEach, expect, test } from '@jest/globals'
import { type SpanContext, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import { setBatchTraceRatio } from '../../../src/messaging/telemetry/batch-draw.ts'
import { pollSpan, traceCommit } from '../../../src/messaging/telemetry/poll-span.ts'
import { dedupeSpan } from '../../../src/messaging/telemetry/tracing.ts'
import { recordBatches } from '../../support/telemetry/recorded-batches.ts'

const exporter = recordBatches()

beforeEach(() => {
  exporter.reset()
  setBatchTraceRatio(1)
})

const GROUP = 'orders-summary'
const place = (partition: number) => ({ topic: 'order.events', partition, group: GROUP })
const commitOf = (partition: number, offset: number) => ({ topic: 'order.events', partition, offset: String(offset) })
const done = async () => {}

/** A batch that was applied up to `nextOffset`; resolves to its span's context. */
async function polled(partition: number, nextOffset: number): Promise<SpanContext | null> {
  return await pollSpan(place(partition), nothing, async (poll) => {
    poll.finished(BigInt(nextOffset))
    return poll.context
  })
}

const nothing = () => []

function named(name: string): ReadableSpan[] {
  return exporter.getFinishedSpans().filter((span) => span.name === name)
}

/** The batches under which a commit stands. */
function committed(): (string | undefined)[] {
  return named('commit order.events').map(({ parentSpanContext }) => parentSpanContext?.spanId)
}

test('a batch is a root of its own, with links to its events, and what its transaction does is under it', async () => {
  const messages = ['01', '00'].map((flags, index) => ({
    id: `event-${index}`,
    trace: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(15)}${index}-${flags}` },
  }))

  const seen = await pollSpan(
    place(3),
    () => messages,
    async (poll) => {
      trace.getTracer('test').startSpan('insert orders.processed_events').end()
      await dedupeSpan(GROUP, async (dedupe) => dedupe.result('new'), poll.context)
      poll.fail(Object.assign(new Error('secret'), { code: '23505' }))
      return poll.context
    },
  )

  const [root] = named('poll order.events')
  expect(root?.spanContext()).toEqual(seen)
  expect(root?.kind).toBe(SpanKind.CLIENT)
  // The unsampled event's context leads nowhere.
  expect(root?.links.map(({ attributes }) => attributes)).toEqual([{ 'messaging.message.id': 'event-0' }])
  expect(root?.status.code).toBe(SpanStatusCode.ERROR)
  expect(root?.attributes).toMatchObject({
    'messaging.consumer.group.name': GROUP,
    'messaging.batch.message_count': 2,
    'error.type': '23505',
  })
  expect(named('insert orders.processed_events')[0]?.parentSpanContext?.spanId).toBe(seen?.spanId)
  expect(named('dedupe processed_events')[0]?.links).toEqual([{ context: seen }])
})

test('the commit of an offset stands under each batch that it finishes, and under no other', async () => {
  const [first, second, later, elsewhere] = [
    await polled(0, 5),
    await polled(0, 9),
    await polled(0, 12),
    await polled(1, 3),
  ]

  await traceCommit(GROUP, [commitOf(0, 9)], done)
  expect(committed()).toEqual([first?.spanId, second?.spanId])
  await traceCommit(GROUP, [commitOf(0, 12), commitOf(1, 3)], done)
  await traceCommit(GROUP, [commitOf(0, 12), commitOf(1, 3)], done)

  expect(committed()).toEqual([first, second, later, elsewhere].map((poll) => poll?.spanId))
  const [commit] = named('commit order.events')
  expect(commit?.spanContext().traceId).toBe(first?.traceId)
  expect(commit?.kind).toBe(SpanKind.CLIENT)
  expect(commit?.attributes).toEqual({
    'messaging.system': 'kafka',
    'messaging.operation.name': 'commit',
    'messaging.operation.type': 'settle',
    'messaging.destination.name': 'order.events',
    'messaging.destination.partition.id': '0',
    'messaging.consumer.group.name': GROUP,
    'messaging.kafka.offset': 9,
  })
})

test('a commit that fails is an error, and the next one stands beside it', async () => {
  const poll = await polled(0, 5)

  await expect(traceCommit(GROUP, [commitOf(0, 5)], () => Promise.reject(new Error('secret')))).rejects.toThrow()
  await traceCommit(GROUP, [commitOf(0, 7)], done)

  expect(committed()).toEqual([poll?.spanId, poll?.spanId])
  expect(named('commit order.events').map(({ status }) => status)).toEqual([
    { code: SpanStatusCode.ERROR },
    { code: SpanStatusCode.UNSET },
  ])
})

test('another group commits nothing of it, and what is never committed is forgotten in the end', async () => {
  const polls = []
  for (let offset = 1; offset <= 100; offset += 1) polls.push(await polled(0, offset))

  await traceCommit('another', [commitOf(0, 100)], done)
  expect(committed()).toEqual([])
  await traceCommit(GROUP, [commitOf(0, 100)], done)

  expect(committed()).toEqual(polls.slice(-64).map((poll) => poll?.spanId))
})

test('a batch that is not drawn leaves no span, nor does its commit', async () => {
  setBatchTraceRatio(0)

  expect(await polled(0, 5)).toBeNull()
  await traceCommit(GROUP, [commitOf(0, 5)], done)

  expect(exporter.getFinishedSpans()).toEqual([])
})
