/** The traces of the relay's batches, under the real SDK with our sampler and an exporter in memory. */
import { beforeEach, expect, test } from '@jest/globals'
import { SpanKind, SpanStatusCode } from '@opentelemetry/api'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { PublishError } from '../../../src/messaging/errors.ts'
import { setBatchTraceRatio } from '../../../src/messaging/telemetry/batch-draw.ts'
import { startBatchSend, traceMark, traceRead } from '../../../src/messaging/telemetry/batch-span.ts'
import { startSend } from '../../../src/messaging/telemetry/tracing.ts'
import { setWaitSpans } from '../../../src/messaging/telemetry/wait-span.ts'
import { recordBatches } from '../../support/telemetry/recorded-batches.ts'

const exporter = recordBatches()

beforeEach(() => {
  exporter.reset()
  setBatchTraceRatio(1)
})

const where = { topic: 'order.events', partition: 3 }
const failure = new PublishError(where, { kind: 'outage', outcome: 'unknown', reason: 'REQUEST_TIMED_OUT' })
const done = async () => {}

let made = 0
function event(flags = '01'): OutboxEvent {
  made += 1
  const digits = made.toString(16).padStart(16, '0')
  return {
    id: `01890a5d-ac96-774b-bcce-${digits.slice(-12)}`,
    type: 'OrderPlaced',
    aggregate: { type: 'order', id: `order-${made}` },
    version: 1,
    payload: '{}',
    occurredAt: new Date(),
    headers: {},
    trace: { traceparent: `00-${'a'.repeat(16)}${digits}-${digits}-${flags}` },
    seq: BigInt(made),
    lane: 3,
    keyHash: 3,
    createdAt: new Date(),
    topic: null,
  }
}

test('a batch is one trace: the read, each request and the marks under a root that links to its events', async () => {
  const [first, second, third] = [event(), event('00'), event()]
  const readAt = Date.now() - 50

  traceRead([first, second, third], readAt)
  startBatchSend([first, second], { ...where, attempt: 1 }).end()
  startBatchSend([third], { ...where, partition: 4, attempt: 1 }).end()
  await traceMark([first], done)
  expect(named('relay outbox')).toEqual([])
  await traceMark([second, third], done)

  const [root] = named('relay outbox')
  expect(root?.parentSpanContext).toBeUndefined()
  expect(root?.kind).toBe(SpanKind.INTERNAL)
  expect(root?.attributes).toMatchObject({ 'messaging.batch.message_count': 3, 'outbox.name': 'outbox' })
  expect(root?.startTime).toEqual(named('select outbox')[0]?.startTime)
  // The unsampled event's context leads nowhere.
  expect(root?.links.map(({ attributes }) => attributes)).toEqual([
    { 'messaging.message.id': first.id },
    { 'messaging.message.id': third.id },
  ])
  const children = exporter.getFinishedSpans().filter((span) => span !== root)
  expect(children.map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual(
    children.map(() => root?.spanContext().spanId),
  )
  expect(
    children.map(({ name, kind, attributes }) => [name, kind, attributes['messaging.batch.message_count']]),
  ).toEqual([
    ['select outbox', SpanKind.CLIENT, 3],
    ['send order.events', SpanKind.CLIENT, 2],
    ['send order.events', SpanKind.CLIENT, 1],
    ['mark outbox', SpanKind.CLIENT, 1],
    ['mark outbox', SpanKind.CLIENT, 2],
  ])
})

test('a batch that repeats one that failed is recorded though none was drawn, and one that does not is not', async () => {
  setBatchTraceRatio(0)
  const events = [event(), event()]

  traceRead(events, Date.now())
  startBatchSend(events, { ...where, attempt: 1 }).end(failure)
  expect(exporter.getFinishedSpans()).toEqual([])

  const again = startBatchSend(events, { ...where, attempt: 2 })
  again.end()
  await traceMark(events, done)

  const [root] = named('relay outbox')
  expect(again.context).toEqual(root?.spanContext())
  expect(named('send order.events')).toHaveLength(1)
  expect(root?.status.code).toBe(SpanStatusCode.UNSET)
})

test('a failed request fails its batch and ends it, since its events are read anew', () => {
  const events = [event()]

  traceRead(events, Date.now())
  startBatchSend(events, { ...where, attempt: 1 }).end(failure)

  const failed = [...named('relay outbox'), ...named('send order.events')]
  expect(failed.map(({ status, attributes }) => [status, attributes['error.type']])).toEqual([
    [{ code: SpanStatusCode.ERROR }, 'REQUEST_TIMED_OUT'],
    [{ code: SpanStatusCode.ERROR }, 'REQUEST_TIMED_OUT'],
  ])
})

test('marks that fail are tried again within the same batch', async () => {
  const events = [event()]
  traceRead(events, Date.now())
  startBatchSend(events, { ...where, attempt: 1 }).end()

  await expect(traceMark(events, () => Promise.reject(new Error('connection lost')))).rejects.toThrow()
  expect(named('relay outbox')).toEqual([])
  await traceMark(events, done)

  expect(named('mark outbox').map(({ status }) => status.code)).toEqual([SpanStatusCode.ERROR, SpanStatusCode.UNSET])
  expect(named('relay outbox')).toHaveLength(1)
})

test('a batch has no more links than the SDK keeps', async () => {
  const events = Array.from({ length: 500 }, () => event())

  traceRead(events, Date.now())
  await traceMark(events, done)

  const [root] = named('relay outbox')
  expect(root?.links).toHaveLength(128)
  expect(root?.droppedLinksCount).toBe(0)
})

test('how long an event waited is a span of its trace where somebody wants to see it, and only then', () => {
  const createdAt = new Date(Date.now() - 2_000)
  const waited = { ...event(), createdAt }

  startSend(waited, { ...where, attempt: 1 }).end()
  expect(named('outbox wait')).toEqual([])
  setWaitSpans(true)
  startSend(waited, { ...where, attempt: 1 }).end()
  startSend(waited, { ...where, attempt: 2 }).end()
  setWaitSpans(false)

  const [wait, ...others] = named('outbox wait')
  expect(others).toEqual([])
  expect(wait?.parentSpanContext?.spanId).toBe(waited.trace?.traceparent.slice(36, 52))
  expect(wait?.duration[0]).toBe(2)
})

test("an event's own send links to the batch that carries it", () => {
  const sent = event()
  traceRead([sent], Date.now())
  const batch = startBatchSend([sent], { ...where, attempt: 1 })

  startSend(sent, { ...where, attempt: 1, batch: batch.context }).end()

  const own = named('send order.events').find(({ kind }) => kind === SpanKind.PRODUCER)
  expect(own?.links.map((link) => link.context.spanId)).toEqual([
    sent.trace?.traceparent.slice(36, 52),
    batch.context?.spanId,
  ])
})

function named(name: string): ReadableSpan[] {
  return exporter.getFinishedSpans().filter((span) => span.name === name)
}
