/** What the `send` spans say of attempts and of what operators ask for, under the real SDK with an exporter in memory. */
import { beforeEach, expect, test } from '@jest/globals'
import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { requestResume } from '../../../src/messaging/dead-letters/requests.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, type RelaySetting, TOPIC } from './setting.ts'

const exporter = new InMemorySpanExporter()
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }))
const tracer = trace.getTracer('request')

beforeEach(() => exporter.reset())

/** Appends under a request of its own; resolves to that request's trace. */
async function request(setting: RelaySetting, type: string, key: string): Promise<string> {
  return await tracer.startActiveSpan('request', async (span) => {
    await setting.append(orderEvent(type, key))
    span.end()
    return span.spanContext().traceId
  })
}

function sends(): readonly ReadableSpan[] {
  return exporter.getFinishedSpans().filter(({ name }) => name === `send ${TOPIC}`)
}

/** Of the events' own spans, attempts by trace, in the order of their ends. */
function attemptsIn(traceId: string): readonly unknown[] {
  const own = sends().filter((span) => span.spanContext().traceId === traceId)
  return own.map(({ attributes }) => attributes['outbox.attempt'])
}

test('attempts count the sends of an event and not those of its partition', async () => {
  await using setting = await createRelaySetting()
  setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  const refused = await request(setting, 'Refused', 'bad')
  const relay = setting.start({ maxAttempts: 3 })
  await eventually('it was tried twice', () => relay.status().heldKeys[0]?.attempts === 2)
  const good = await request(setting, 'Placed', 'good')
  await eventually('the other is published', () => attemptsIn(good).length === 1)
  await eventually('the key is parked', () => relay.status().heldKeys[0]?.state === 'parked')

  expect(attemptsIn(refused)).toEqual([1, 2, 3])
  expect(attemptsIn(good)).toEqual([1])
})

test('what an operator resumes is sent in a trace of its own, linked to the first', async () => {
  await using setting = await createRelaySetting()
  const allow = setting.broker.faults.refuseRecords(() => true)
  const origin = await request(setting, 'Refused', 'bad')
  const relay = setting.start({ maxAttempts: 1 })
  await eventually('the key is parked', () => relay.status().heldKeys[0]?.state === 'parked')
  allow()

  const key = { holder: 'relay', topic: TOPIC, aggregateType: 'order', aggregateId: 'bad' }
  expect(await requestResume(setting.db, key)).toBe('requested')
  await setting.drained()

  expect(attemptsIn(origin)).toEqual([1])
  const resumed = sends().at(-1)
  expect(resumed?.spanContext().traceId).not.toBe(origin)
  expect(resumed?.parentSpanContext).toBeUndefined()
  expect(resumed?.attributes).toMatchObject({ 'outbox.attempt': 1, 'outbox.trace.detached': true })
  expect(resumed?.links.map((link) => link.context.traceId)).toContain(origin)
})
