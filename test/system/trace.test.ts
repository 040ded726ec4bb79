/** Traces of the whole service, as a collector receives them: its real command, its threads, a real Postgres and a real Kafka. */

import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Kafka, logLevel } from 'kafkajs'
import knex, { type Knex } from 'knex'
import type { ExportedSpan } from '../support/otlp/decode-traces.ts'
import { type OtlpSink, startOtlpSink } from '../support/otlp/sink.ts'
import type { Service } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { startOneThread } from '../support/telemetry/one-thread.ts'
import { outline } from '../support/telemetry/outline.ts'
import { type OutboxExtension, placeOrder, readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

let stack: SystemStack
/** One service with all of its threads, for the tests that do not stop it. */
let threaded: Traced
/** Its first order: only that one parses and validates the mutation. */
let first: OutboxExtension
let firstSpans: readonly ExportedSpan[]
let firstTree: string
beforeAll(async () => {
  stack = await startSystemStack({ durable: false })
  threaded = await startTraced({ RELAY_THREADS: '2' })
  first = await placeOrder(threaded.service)
  firstSpans = await wholeTrace(threaded.sink, first.traceId)
  firstTree = general(outline(firstSpans), threaded.env)
})
afterAll(async () => {
  await threaded?.[Symbol.asyncDispose]()
  await stack?.[Symbol.asyncDispose]()
})

test('PC-70 PC-71 a mutation, its event and its effect are one trace, across three services and four threads', async () => {
  const { env, service, sink } = threaded
  const topic = `${env.TOPIC_PREFIX}order.events`

  // Polling, migrations and housekeeping leave none.
  expect(sink.spans.filter(({ parentSpanId, name }) => parentSpanId === '' && name !== 'POST /graphql')).toEqual([])
  expect(firstSpans.length).toBeLessThanOrEqual(24)
  expect(firstTree).toMatchSnapshot()
  const send = firstSpans.find(({ name }) => name === `send ${topic}`)
  const process = firstSpans.find(({ name }) => name === `process ${topic}`)
  expect(send?.links).toEqual([{ traceId: send?.traceId, spanId: send?.parentSpanId }])
  expect(process?.links).toEqual([{ traceId: process?.traceId, spanId: process?.parentSpanId }])
  expect(process?.attributes).toMatchObject({
    'messaging.message.id': first.eventIds[0],
    'messaging.consumer.group.name': `${env.TOPIC_PREFIX}orders-summary`,
    'outbox.result': 'processed',
    'outbox.event.type': 'OrderPlaced',
  })
  expect((await service.log()).filter(({ msg }) => String(msg).startsWith('Telemetry'))).toEqual([])
})

test('PC-71 with each role in a process of its own the tree is the same, service by service', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using apart = new AsyncDisposableStack()
  const traced = { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint }
  const [api] = await Promise.all(
    (['api', 'relay', 'consumer'] as const).map(async (role) =>
      apart.use(await startReadyService(stack.dir, traced, [role])),
    ),
  )
  if (api === undefined) throw new Error('No process has the API')

  const { traceId } = await placeOrder(api)
  const tree = outline(await wholeTrace(sink, traceId))

  expect(general(tree, env)).toBe(firstTree)
})

test('PC-71 with everything in the main thread the tree is the same', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using process = await startOneThread({ ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })
  await process.tell('start relay')
  await process.tell('start consumers')

  const { traceId } = await placeOrder(process)
  const tree = outline(await wholeTrace(sink, traceId))

  const [threads, alone] = [firstTree, general(tree, env)].map((text) =>
    text.replaceAll(/(orders-api|outbox-relay|orders-summary)$/gm, 'service'),
  )
  expect(alone).toBe(threads)
})

test('PC-69 a stop right after mutations loses no span, of whichever thread', async () => {
  await using own = await startTraced({
    RELAY_THREADS: '2',
    // Longer than the test: what arrives was sent by the stop.
    OTEL_BSP_SCHEDULE_DELAY: '600000',
  })
  const { env, service, sink } = own
  await using db = open(env)

  await Promise.all(Array.from({ length: 20 }, () => placeOrder(service)))
  await until('Every event published', async () => {
    const pending = await db.knex('outbox').whereNull('published_at')
    return pending.length === 0 ? true : null
  })
  await until('An effect', async () => ((await db.knex('processed_events').first()) === undefined ? null : true))
  expect(sink.spans).toEqual([])
  expect(await service.kill('SIGTERM')).toBe('exit code 0')

  const eventsOf = (name: string) =>
    sink.spans
      .filter((span) => span.name === `${name} ${env.TOPIC_PREFIX}order.events`)
      .map(({ attributes }) => attributes['messaging.message.id'])
  const published = await db.knex('outbox').pluck('id')
  expect(eventsOf('create').sort()).toEqual(published.toSorted())
  expect(eventsOf('send').sort()).toEqual(published.toSorted())
  expect(eventsOf('process')).toEqual(expect.arrayContaining(await db.knex('processed_events').pluck('event_id')))
  const threads = new Set(sink.spans.map(({ resource }) => String(resource['service.instance.id']).split('/').at(-1)))
  expect([...threads].sort()).toEqual(['consumer', 'main', 'relay-0', 'relay-1'])
  const ids = new Set(sink.spans.map(({ spanId }) => spanId))
  expect(sink.spans.filter(({ parentSpanId }) => parentSpanId !== '' && !ids.has(parentSpanId))).toEqual([])
})

test('PC-69 PC-73 a collector that has gone silent slows neither events nor the stop', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })
  sink.hang()

  for (let n = 0; n < 50; n++) await placeOrder(service)
  await untilMetric(service, 'outbox_relay_published_messages_total', 50)
  // It stays silent, so that nothing but the service's own patience can end the stop.
  const from = performance.now()
  expect(await service.kill('SIGTERM')).toBe('exit code 0')

  expect(performance.now() - from).toBeLessThan(15_000)
  expect(sink.unansweredCount).toBeGreaterThan(0)
})

test('a line of the log leads to the trace of its request, whichever thread has written it', async () => {
  const { env, service } = threaded
  await using db = open(env)
  const topic = `${env.TOPIC_PREFIX}order.events`
  const line = async (message: string) =>
    await until(message, async () => (await service.log()).find(({ msg }) => msg === message) ?? null)

  await refuseChanges(db.knex, 'customer_summary')
  const unapplied = await placeOrder(service)
  const ofConsumer = await line('A handler failed; its partition waits for the next attempt')
  await limitRecords(topic, 100)
  const unpublished = await placeOrder(service)
  const ofRelay = await line('Key held')
  await refuseChanges(db.knex, 'orders')
  const request = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' }
  await orderWithin(service, `00-${request.traceId}-${request.spanId}-01`)
  const ofMain = await line('A request failed unexpectedly')

  const always = {
    level: expect.any(String),
    time: expect.any(String),
    span_id: expect.stringMatching(/^[\da-f]{16}$/),
  }
  const event = {
    ...always,
    outbox: 'orders',
    topic,
    event_type: 'OrderPlaced',
    aggregate_type: 'order',
    partition: expect.any(Number),
    attempt: 1,
    trace_flags: '01',
  }
  expect(ofMain).toMatchObject({ ...always, thread: 'main', trace_id: request.traceId, trace_flags: '01' })
  expect(ofRelay).toMatchObject({
    ...event,
    thread: expect.stringMatching(/^relay-[01]$/),
    trace_id: unpublished.traceId,
    event_id: unpublished.eventIds[0],
    reason: 'MESSAGE_TOO_LARGE',
  })
  expect(ofConsumer).toMatchObject({
    ...event,
    thread: 'consumer',
    trace_id: unapplied.traceId,
    event_id: unapplied.eventIds[0],
    offset: expect.stringMatching(/^\d+$/),
  })
  const text = await readFile(service.logFile, 'utf8')
  expect(text.split('\n').filter((each) => each !== '' && !each.startsWith('{'))).toEqual([])
  expect(text).not.toMatch(/sku-1|customer-1/)
})

interface Traced extends AsyncDisposable {
  readonly env: Readonly<Record<string, string>>
  readonly service: Service
  readonly sink: OtlpSink
}

/** A service with all roles, and the collector that it sends to. */
async function startTraced(settings: Readonly<Record<string, string>>): Promise<Traced> {
  await using failed = new AsyncDisposableStack()
  const sink = failed.use(await startOtlpSink())
  const env = { ...(await stack.freshEnv()), ...settings, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint }
  const service = failed.use(await startReadyService(stack.dir, env))
  const opened = failed.move()
  return { env, service, sink, [Symbol.asyncDispose]: () => opened.disposeAsync() }
}

/** The spans of a trace, once the last of each thread is there: a thread sends what is under a span before it. */
async function wholeTrace(sink: OtlpSink, traceId: string): Promise<readonly ExportedSpan[]> {
  const ours = (spans: readonly ExportedSpan[]) => spans.filter((span) => span.traceId === traceId)
  const ends = ['POST ', 'send ', 'process ']
  const isWhole = (spans: readonly ExportedSpan[]) =>
    ends.every((word) => spans.some(({ name }) => name.startsWith(word)))
  return ours(await sink.until((spans) => isWhole(ours(spans))))
}

function open({ DATABASE_URL = '' }: Readonly<Record<string, string>>) {
  const db = knex({ client: 'pg', connection: DATABASE_URL })
  return { knex: db, [Symbol.asyncDispose]: () => db.destroy() }
}

/** From now on Postgres refuses to change `table`, for good. */
async function refuseChanges(db: Knex, table: string): Promise<void> {
  await db.raw(`
    create or replace function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
    create trigger refuse before insert or update on ${table} for each row execute function refuse()`)
}

/** From now on the broker refuses larger records on `topic`. */
async function limitRecords(topic: string, bytes: number): Promise<void> {
  const admin = new Kafka({ clientId: 'test', brokers: [...stack.kafka.brokers], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  try {
    const configEntries = [{ name: 'max.message.bytes', value: String(bytes) }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries }] })
  } finally {
    await admin.disconnect()
  }
}

/** Tries to place an order, as part of a trace that has begun elsewhere. */
async function orderWithin({ url }: Service, traceparent: string): Promise<void> {
  const input = '{ customerId: "customer-1", items: [{ sku: "sku-1", quantity: 1, unitPriceCents: 100 }] }'
  const query = `mutation { placeOrder(input: ${input}) { order { id } } }`
  const headers = { 'content-type': 'application/json', traceparent }
  await fetch(`${url}/graphql`, { method: 'POST', headers, body: JSON.stringify({ query }) })
}

/** Without what is another one in each test. */
function general(tree: string, env: Readonly<Record<string, string>>): string {
  return tree.replaceAll(String(env.TOPIC_PREFIX), '').replaceAll(/test_\w+/g, 'orders')
}

async function untilMetric(service: Service, name: string, least: number): Promise<void> {
  await until(`${least} in ${name}`, async () => {
    const [, value = '0'] = new RegExp(`^${name}\\{.*\\} (\\d+)`, 'm').exec(await readMetrics(service)) ?? []
    return Number(value) >= least ? true : null
  })
}
