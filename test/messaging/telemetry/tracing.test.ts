/** Where an event's spans belong, under the real SDK with our sampler and an exporter in memory. */
import { beforeEach, expect, test } from '@jest/globals'
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import type { OutboxEvent, TraceContext } from '../../../src/messaging/envelope.ts'
import { PublishError } from '../../../src/messaging/errors.ts'
import {
  currentTraceContext,
  dedupeSpan,
  processSpan,
  startCreate,
  startSend,
  type TracedDelivery,
  untraced,
} from '../../../src/messaging/telemetry/tracing.ts'
import { createSampler } from '../../../src/service/telemetry-sampler.ts'

const exporter = new InMemorySpanExporter()
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
trace.setGlobalTracerProvider(
  new TracerProvider({
    sampler: createSampler({ parentBased: true, ratio: 1 }),
    spanProcessors: [new SimpleSpanProcessor({ exporter })],
  }),
)
const tracer = trace.getTracer('test')

beforeEach(() => {
  exporter.reset()
  propagation.disable()
})

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c'
const SPAN_ID = 'b7ad6b7169203331'
const traceparent = (flags: string) => `00-${TRACE_ID}-${SPAN_ID}-${flags}`
const HOURS = 3_600_000

function storedEvent(fields: Partial<OutboxEvent> = {}): OutboxEvent {
  return {
    id: '01890a5d-ac96-774b-bcce-b302099a8057',
    type: 'OrderPlaced',
    aggregate: { type: 'order', id: 'order-1' },
    version: 1,
    payload: '{"é": 1}',
    occurredAt: new Date(),
    headers: {},
    trace: { traceparent: traceparent('01') },
    seq: 1n,
    lane: 3,
    keyHash: 3,
    createdAt: new Date(),
    topic: null,
    ...fields,
  }
}

function delivery(fields: Partial<TracedDelivery> = {}): TracedDelivery {
  return {
    id: '01890a5d-ac96-774b-bcce-b302099a8057',
    type: 'OrderPlaced',
    key: 'order-1',
    topic: 'order.events',
    partition: 3,
    offset: 42n,
    bodyBytes: 10,
    group: 'orders-summary',
    trace: { traceparent: traceparent('01') },
    ...fields,
  }
}

const where = { topic: 'order.events', partition: 3, attempt: 1 }

function send(event: OutboxEvent, attempt = 1, error?: unknown): TraceContext | null {
  const span = startSend(event, { ...where, attempt })
  span.end(error)
  return span.trace
}

function only(name: string): ReadableSpan {
  const [span, ...others] = exporter.getFinishedSpans().filter((each) => each.name === name)
  if (!span || others.length > 0) throw new Error(`Expected one span ${name}, found ${span ? others.length + 1 : 0}`)
  return span
}

test('an event joins the trace of the request, from create over send to process and dedupe', async () => {
  const created = tracer.startActiveSpan('mutation', (mutation) => {
    const span = startCreate({ ...storedEvent(), bodyBytes: 9 }, 'order.events')
    span.end()
    mutation.end()
    return span.trace
  })
  const sent = send(storedEvent({ trace: created }))
  await processSpan(delivery({ trace: sent }), () => dedupeSpan('orders-summary', async () => {}))

  const chain = [
    'mutation',
    'create order.events',
    'send order.events',
    'process order.events',
    'dedupe processed_events',
  ]
  const spans = chain.map(only)
  expect(new Set(spans.map((span) => span.spanContext().traceId)).size).toBe(1)
  expect(spans.slice(1).map((span) => span.parentSpanContext?.spanId)).toEqual(
    spans.slice(0, -1).map((span) => span.spanContext().spanId),
  )
  expect(spans.map(({ kind }) => kind)).toEqual([
    SpanKind.INTERNAL,
    SpanKind.PRODUCER,
    SpanKind.PRODUCER,
    SpanKind.CONSUMER,
    SpanKind.INTERNAL,
  ])
})

test('every span says what was done with which event, and never its payload', async () => {
  startCreate({ ...storedEvent(), bodyBytes: 9 }, 'order.events').end()
  startSend(storedEvent(), { ...where, clientId: 'relay-0' }).end()
  await processSpan(delivery({ createdAt: new Date(Date.now() - 2_000) }), async (span) => span.result('processed'))

  const shown = ['create', 'send', 'process'].map((name) => only(`${name} order.events`).attributes)
  expect(shown).toEqual([
    {
      'messaging.system': 'kafka',
      'messaging.operation.name': 'create',
      'messaging.operation.type': 'create',
      'messaging.destination.name': 'order.events',
      'messaging.message.id': storedEvent().id,
      'messaging.message.body.size': 9,
      'messaging.kafka.message.key': 'order-1',
      'outbox.name': 'outbox',
      'outbox.event.type': 'OrderPlaced',
    },
    {
      'messaging.system': 'kafka',
      'messaging.operation.name': 'send',
      'messaging.operation.type': 'send',
      'messaging.destination.name': 'order.events',
      'messaging.destination.partition.id': '3',
      'messaging.client.id': 'relay-0',
      'messaging.message.id': storedEvent().id,
      'messaging.message.body.size': 9,
      'messaging.kafka.message.key': 'order-1',
      'outbox.name': 'outbox',
      'outbox.event.type': 'OrderPlaced',
      'outbox.attempt': 1,
      'outbox.delay': expect.any(Number),
    },
    {
      'messaging.system': 'kafka',
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'messaging.destination.name': 'order.events',
      'messaging.destination.partition.id': '3',
      'messaging.kafka.offset': 42,
      'messaging.consumer.group.name': 'orders-summary',
      'messaging.message.id': storedEvent().id,
      'messaging.message.body.size': 10,
      'messaging.kafka.message.key': 'order-1',
      'outbox.name': 'outbox',
      'outbox.event.type': 'OrderPlaced',
      'outbox.result': 'processed',
      'outbox.delivery.delay': expect.any(Number),
    },
  ])
})

test('two events of one batch stay in the traces of their requests, whatever is active', async () => {
  const other = '1af7651916cd43dd8448eb211c80319c'
  tracer.startActiveSpan('poll', (poll) => {
    send(storedEvent())
    send(storedEvent({ trace: { traceparent: `00-${other}-${SPAN_ID}-01` } }))
    poll.end()
  })

  const sent = exporter.getFinishedSpans().filter(({ name }) => name.startsWith('send'))
  expect(sent.map((span) => span.spanContext().traceId)).toEqual([TRACE_ID, other])
})

test('a failed attempt is an error, and its retry a sibling', () => {
  const failure = new PublishError(
    { topic: 'order.events' },
    { kind: 'outage', outcome: 'unknown', reason: 'REQUEST_TIMED_OUT', cause: new Error('secret value') },
  )
  send(storedEvent(), 1, failure)
  send(storedEvent(), 2)

  const [first, second] = exporter.getFinishedSpans()
  expect(first?.status).toEqual({ code: SpanStatusCode.ERROR })
  expect(first?.attributes['error.type']).toBe('REQUEST_TIMED_OUT')
  expect(JSON.stringify([first?.attributes, first?.events])).not.toContain('secret')
  expect(second?.status.code).toBe(SpanStatusCode.UNSET)
  expect(second?.attributes['outbox.attempt']).toBe(2)
  expect(second?.parentSpanContext?.spanId).toBe(first?.parentSpanContext?.spanId)
})

test('an event older than an hour gets a trace of its own, linked and recorded as the old one was', () => {
  const travels = send(storedEvent({ createdAt: new Date(Date.now() - 2 * HOURS) }))

  const span = only('send order.events')
  expect(span.parentSpanContext).toBeUndefined()
  expect(span.spanContext().traceId).not.toBe(TRACE_ID)
  expect(span.links.map((link) => [link.context.traceId, link.context.spanId])).toEqual([[TRACE_ID, SPAN_ID]])
  expect(span.attributes).toMatchObject({ 'outbox.trace.detached': true, 'outbox.trace.detached.reason': 'old' })
  expect(travels?.traceparent).toBe(`00-${span.spanContext().traceId}-${span.spanContext().spanId}-01`)
})

test('a replay gets a trace of its own, however young', () => {
  send(storedEvent({ headers: { outbox_replay: '1' } }))

  expect(only('send order.events').attributes['outbox.trace.detached.reason']).toBe('replay')
})

test('a delivery at the request of an operator gets a trace of its own, linked, however young', async () => {
  const publishedAt = new Date()
  await processSpan(delivery({ publishedAt, replay: true }), async (span) => span.result('processed'))

  const span = only('process order.events')
  expect(span.parentSpanContext).toBeUndefined()
  expect(span.links.map((link) => link.context.spanId)).toEqual([SPAN_ID])
  expect(span.attributes).toMatchObject({ 'outbox.trace.detached': true, 'outbox.trace.detached.reason': 'replay' })
})

test('an event whose clock is ahead of ours joins its trace, with no delay', () => {
  send(storedEvent({ createdAt: new Date(Date.now() + 2 * HOURS) }))

  expect(only('send order.events').attributes['outbox.delay']).toBe(0)
  expect(only('send order.events').spanContext().traceId).toBe(TRACE_ID)
})

test.each([
  ['not there', null],
  ['empty', { traceparent: '' }],
  ['of zeros', { traceparent: `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01` }],
  ['of the forbidden version', { traceparent: `ff-${TRACE_ID}-${SPAN_ID}-01` }],
  ['too long for its version', { traceparent: `${traceparent('01')}-extra` }],
  ['unsampled by its end and broken elsewhere', { traceparent: `00-${'z'.repeat(32)}-${SPAN_ID}-00` }],
])('stored context that is %s starts a new trace and fails nothing', (_case, stored) => {
  const travels = send(storedEvent({ trace: stored }))

  const span = only('send order.events')
  expect(span.parentSpanContext).toBeUndefined()
  expect(span.links).toEqual([])
  expect(travels?.traceparent).toContain(span.spanContext().traceId)
})

test.each(['00', '02'])('an event with flags %s leaves no span, and its context travels on as it is', async (flags) => {
  const stored = { traceparent: traceparent(flags), tracestate: 'vendor=1' }
  const travels = send(storedEvent({ trace: stored }))
  const seen = await processSpan(delivery({ trace: stored }), async () =>
    dedupeSpan('orders-summary', async () => {
      tracer.startSpan('insert').end()
      return currentTraceContext()
    }),
  )

  expect(travels).toBe(stored)
  expect(exporter.getFinishedSpans()).toEqual([])
  expect(seen?.traceparent.slice(3, 35)).toBe(TRACE_ID)
})

test.each(['01', '03'])('an event with flags %s is recorded, its tracestate kept', (flags) => {
  const travels = send(storedEvent({ trace: { traceparent: traceparent(flags), tracestate: 'vendor=1' } }))

  expect(only('send order.events').parentSpanContext?.spanId).toBe(SPAN_ID)
  expect(travels?.tracestate).toBe('vendor=1')
})

test('a request that is not recorded stores its context without a span', () => {
  const unsampled = trace.setSpanContext(context.active(), { traceId: TRACE_ID, spanId: SPAN_ID, traceFlags: 0 })
  const created = context.with(unsampled, () => startCreate({ ...storedEvent(), bodyBytes: 9 }, 'order.events'))
  created.end()

  expect(created.trace).toEqual({ traceparent: traceparent('00') })
  expect(exporter.getFinishedSpans()).toEqual([])
})

test('a redelivery adds a sibling that says duplicate', async () => {
  await processSpan(delivery(), async (span) => span.result('processed'))
  await processSpan(delivery(), async (span) => {
    await dedupeSpan('orders-summary', async (dedupe) => dedupe.result('duplicate'))
    span.result('duplicate')
  })

  const processed = exporter.getFinishedSpans().filter(({ name }) => name.startsWith('process'))
  expect(processed.map((span) => [span.parentSpanContext?.spanId, span.attributes['outbox.result']])).toEqual([
    [SPAN_ID, 'processed'],
    [SPAN_ID, 'duplicate'],
  ])
  expect(only('dedupe processed_events').attributes['outbox.dedupe.result']).toBe('duplicate')
})

test('PC-72 of three messages in one batch each has its own span, and only the failed one is an error', async () => {
  const traces = ['1', '2', '3'].map((digit) => `${digit}af7651916cd43dd8448eb211c80319c`)
  await untraced(async () => {
    for (const [index, traceId] of traces.entries()) {
      const one = delivery({ trace: { traceparent: `00-${traceId}-${SPAN_ID}-01` }, offset: BigInt(index) })
      const done = processSpan(one, async () => {
        tracer.startSpan('insert').end()
        if (index === 1) throw new TypeError('no')
      })
      await done.catch(() => {})
    }
  })

  const spans = exporter.getFinishedSpans()
  const inserts = spans.filter(({ name }) => name === 'insert')
  const processed = spans.filter(({ name }) => name.startsWith('process'))
  expect(inserts.map((span) => span.spanContext().traceId)).toEqual(traces)
  expect(inserts.map((span) => span.parentSpanContext?.spanId)).toEqual(processed.map((s) => s.spanContext().spanId))
  expect(processed.map(({ status }) => status.code)).toEqual([0, SpanStatusCode.ERROR, 0])
  expect(processed[1]?.attributes['error.type']).toBe('TypeError')
})

test('polling leaves no span, also when what it awaits is lazy', async () => {
  const lazy = {
    // biome-ignore lint/suspicious/noThenProperty: a builder that runs when awaited, as knex's does
    then(resolve: (value: string) => void) {
      tracer.startSpan('select outbox').end()
      resolve('rows')
    },
  } as unknown as Promise<string>

  expect(await untraced(() => lazy)).toBe('rows')
  expect(exporter.getFinishedSpans()).toEqual([])
})

test('an event retried or given up is a failed delivery, though its handler has been answered', async () => {
  await processSpan(delivery(), async (span) => span.result('retry', new RangeError('secret')))

  expect(only('process order.events')).toMatchObject({
    status: { code: SpanStatusCode.ERROR },
    attributes: { 'outbox.result': 'retry', 'error.type': 'RangeError' },
  })
})
