/** Traces as they are found in a real Jaeger, over its HTTP API: what an operator sees of a mutation, a retry, a redelivery. */

import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Kafka, logLevel } from 'kafkajs'
import knex, { type Knex } from 'knex'
import { type Jaeger, startJaeger } from '../../src/local/jaeger.ts'
import { requestResume } from '../../src/messaging/index.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { BUILD_MS, jaegerForTests, withJaeger } from '../support/telemetry/jaeger.ts'
import { findTraces, type StoredSpan, untilTraced } from '../support/telemetry/jaeger-traces.ts'
import { startOneThread } from '../support/telemetry/one-thread.ts'
import { outline } from '../support/telemetry/outline.ts'
import { placeOrder, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

let stack: SystemStack
let jaeger: Jaeger
beforeAll(async () => {
  stack = await startSystemStack({ durable: false })
  if (withJaeger === test.skip) return
  jaeger = await startJaeger({ binary: await jaegerForTests(), dir: join(stack.dir, 'jaeger') })
}, BUILD_MS + 240_000)
afterAll(async () => {
  await jaeger?.[Symbol.asyncDispose]()
  await stack?.[Symbol.asyncDispose]()
})

withJaeger('a mutation and its effect are one trace of three services, with one root and no orphan', async () => {
  const env = await freshEnv()
  await using service = await startReadyService(stack.dir, env)

  const { traceId } = await placeOrder(service)
  const spans = await untilTraced(jaeger.url, traceId, isWhole)

  expect(new Set(spans.map((span) => span.service))).toEqual(new Set(['orders-api', 'outbox-relay', 'orders-summary']))
  expect(rootsOf(spans)).toHaveLength(1)
  expect(spans.length).toBeLessThanOrEqual(24)
})

withJaeger('two groups are two processes under one send', async () => {
  const env = await freshEnv({ TEST_CONSUMERS: 'orders-summary,orders-audit' })
  await using all = await startAll(env)

  const { traceId } = await placeOrder(all)
  const spans = await untilTraced(
    jaeger.url,
    traceId,
    (found) => isWhole(found) && named(found, 'process').length === 2,
  )

  const [send, ...others] = named(spans, 'send')
  expect(others).toEqual([])
  const processes = named(spans, 'process')
  expect(processes.map(({ parentSpanId }) => parentSpanId)).toEqual([send?.spanId, send?.spanId])
  expect(new Set(processes.map((span) => span.attributes['messaging.consumer.group.name']))).toEqual(
    new Set([`${env.TOPIC_PREFIX}orders-summary`, `${env.TOPIC_PREFIX}orders-audit`]),
  )
  expect(general(outline(spans), env)).toMatchSnapshot()
})

withJaeger('a redelivery is a second process beside the first, and a duplicate', async () => {
  const env = await freshEnv()
  const traceId = await (async () => {
    await using first = await startAll(env)
    const placed = await placeOrder(first)
    await untilTraced(jaeger.url, placed.traceId, isWhole)
    return placed.traceId
  })()
  await forgetOffsets(env)

  await using second = await startOneThread(env)
  await second.tell('start consumers')
  const spans = await untilTraced(jaeger.url, traceId, (found) => named(found, 'process').length === 2)

  const processes = named(spans, 'process')
  expect(processes.map(({ attributes }) => attributes['outbox.result']).sort()).toEqual(['duplicate', 'processed'])
  expect(new Set(processes.map(({ parentSpanId }) => parentSpanId))).toEqual(
    new Set(named(spans, 'send').map(({ spanId }) => spanId)),
  )
  expect(rootsOf(spans)).toHaveLength(1)
})

withJaeger('a send that failed is an error, and its retry stands beside it', async () => {
  const env = await freshEnv()
  await using all = await startAll(env)
  await all.tell('fail the next send')
  const since = new Date()

  const { traceId } = await placeOrder(all)
  const spans = await untilTraced(jaeger.url, traceId, (found) => isWhole(found) && named(found, 'send').length === 2)

  const sends = named(spans, 'send').sort(
    (a, b) => Number(a.attributes['outbox.attempt']) - Number(b.attributes['outbox.attempt']),
  )
  expect(sends.map(({ status, attributes }) => [status, attributes['error.type']])).toEqual([
    [2, 'NOT_LEADER_OR_FOLLOWER'],
    [0, undefined],
  ])
  const [create] = named(spans, 'create')
  expect(sends.map(({ parentSpanId }) => parentSpanId)).toEqual([create?.spanId, create?.spanId])
  expect(named(spans, 'process')[0]?.parentSpanId).toBe(sends[1]?.spanId)
  // A batch that repeats a failed one is recorded though none is drawn here.
  const [batch] = await untilBatches(since, 1)
  expect(linkedTraces(batch ?? [])).toContain(traceId)
})

withJaeger('a key that was parked and resumed goes on in a trace of its own, linked to the first', async () => {
  const env = await freshEnv()
  await using db = open(env)
  await using all = await startAll(env)
  await db.knex.raw(`
      create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
      create trigger refuse before insert on customer_summary for each row execute function refuse()`)
  const since = new Date()
  const { traceId } = await placeOrder(all)
  const parked = await until('A parked key', async () => {
    const [row] = await db.knex('held_keys').where({ state: 'parked' })
    return row ?? null
  })
  await db.knex.raw('drop trigger refuse on customer_summary')

  await resume(db.knex, parked)
  const resumed = await until('The resumed trace', async () => {
    const traces = await findTraces(jaeger.url, { service: 'orders-api', name: `process ${parked.topic}`, since })
    return traces.find(([span]) => span?.traceId !== traceId) ?? null
  })

  const [process] = named(resumed, 'process')
  expect(process?.parentSpanId).toBe('')
  expect(process?.attributes).toMatchObject({ 'outbox.trace.detached': true, 'outbox.result': 'processed' })
  const first = await untilTraced(jaeger.url, traceId, (spans) => named(spans, 'process').length === 1)
  expect(named(first, 'process')[0]?.status).toBe(2)
  // The record's own send, and not that of its copy on the dead-letter topic.
  const sends = first.filter(({ name }) => name === `send ${parked.topic}`)
  expect(process?.links).toEqual(sends.map(({ spanId }) => ({ traceId, spanId })))
})

withJaeger(
  'an event that was refused, parked and resumed is sent in a trace of its own, linked to its first',
  async () => {
    const env = await freshEnv()
    await using db = open(env)
    await using all = await startAll(env)
    await all.tell('refuse the next send')
    const since = new Date()
    const { traceId } = await placeOrder(all)
    const parked = await until('A parked key', async () => {
      const [row] = await db.knex('held_keys').where({ holder: 'relay', state: 'parked' })
      return row ?? null
    })

    await resume(db.knex, parked)
    const resumed = await until('The resumed trace', async () => {
      const traces = await findTraces(jaeger.url, { service: 'orders-api', name: `send ${parked.topic}`, since })
      return traces.find((spans) => spans[0]?.traceId !== traceId && named(spans, 'process').length > 0) ?? null
    })
    const first = await untilTraced(jaeger.url, traceId, (spans) => named(spans, 'send').length === 1)

    const [[create], [refused], [send]] = [named(first, 'create'), named(first, 'send'), named(resumed, 'send')]
    expect(refused).toMatchObject({ status: 2, attributes: { 'error.type': 'MESSAGE_TOO_LARGE' } })
    expect(send).toMatchObject({ parentSpanId: '', status: 0, attributes: { 'outbox.trace.detached': true } })
    expect(send?.links).toEqual([{ traceId, spanId: create?.spanId }])
    expect(named(resumed, 'process')[0]?.parentSpanId).toBe(send?.spanId)
  },
)

withJaeger(
  'two mutations that one batch carries stay two traces, and the batch is a third with a link to each',
  async () => {
    const env = await freshEnv({ OUTBOX_TRACES_BATCH_RATIO: '1', TOPIC_PARTITIONS: '1' })
    await using all = await startOneThread(env)
    const [one, two] = [await placeOrder(all), await placeOrder(all)]
    const since = new Date()
    await all.tell('start relay')
    await all.tell('start consumers')

    const traces = await Promise.all([one, two].map(({ traceId }) => untilTraced(jaeger.url, traceId, isWhole)))
    const batches = await untilBatches(since, 1)

    for (const [at, spans] of traces.entries()) {
      expect(rootsOf(spans)).toHaveLength(1)
      const ids = new Set(['create', 'send', 'process'].flatMap((name) => named(spans, name).map(messageId)))
      expect(ids).toEqual(new Set([one, two][at]?.eventIds))
    }
    const [batch = []] = batches
    expect(linkedTraces(batch)).toEqual(new Set([one.traceId, two.traceId]))
    const [root] = rootsOf(batch)
    expect(general(outline(batch), env)).toBe(
      [
        'relay orders | internal orders-api',
        '  mark outbox | client orders-api',
        '  select outbox | client orders-api',
        '  send order.events | client orders-api',
        '',
      ].join('\n'),
    )
    for (const spans of traces) {
      const [send] = named(spans, 'send')
      expect(send?.links).toContainEqual({ traceId: root?.traceId, spanId: root?.spanId })
    }
  },
)

async function freshEnv(more: Readonly<Record<string, string>> = {}): Promise<Record<string, string>> {
  return { ...(await stack.freshEnv()), OTEL_EXPORTER_OTLP_ENDPOINT: jaeger.otlpEndpoint, ...more }
}

async function startAll(env: Readonly<Record<string, string>>) {
  const all = await startOneThread(env)
  await all.tell('start relay')
  await all.tell('start consumers')
  return all
}

function open({ DATABASE_URL = '' }: Readonly<Record<string, string>>) {
  const db = knex({ client: 'pg', connection: DATABASE_URL })
  return { knex: db, [Symbol.asyncDispose]: () => db.destroy() }
}

/** Asks for a key to go on, by its row in `held_keys`. */
async function resume(db: Knex, row: Readonly<Record<string, string>>): Promise<void> {
  const { holder = '', topic = '', aggregate_type: aggregateType = '', aggregate_id: aggregateId = '' } = row
  expect(await requestResume(db, { holder, topic, aggregateType, aggregateId })).toBe('requested')
}

/** Makes the group begin anew, at the broker and in its own memory, as after the loss of both. */
async function forgetOffsets(env: Readonly<Record<string, string>>): Promise<void> {
  await using db = open(env)
  await db.knex.raw('delete from consumer_offsets')
  const brokers = (env.KAFKA_BROKERS ?? '').split(',')
  const admin = new Kafka({ clientId: 'test', brokers, logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  try {
    await admin.deleteGroups([`${env.TOPIC_PREFIX}orders-summary`])
  } finally {
    await admin.disconnect()
  }
}

/** The relay's own traces since then, once there are so many. */
async function untilBatches(since: Date, least: number): Promise<readonly (readonly StoredSpan[])[]> {
  return await until(`${least} traces of batches`, async () => {
    const traces = await findTraces(jaeger.url, { service: 'orders-api', name: 'relay orders', since })
    return traces.length >= least ? traces : null
  })
}

function isWhole(spans: readonly StoredSpan[]): boolean {
  return rootsOf(spans).length === 1 && named(spans, 'process').length > 0 && named(spans, 'send').length > 0
}

/** Spans whose name begins with this word. */
function named(spans: readonly StoredSpan[], word: string): StoredSpan[] {
  return spans.filter(({ name }) => name.startsWith(`${word} `))
}

/** Also those whose parent is not there. */
function rootsOf(spans: readonly StoredSpan[]): StoredSpan[] {
  const ids = new Set(spans.map(({ spanId }) => spanId))
  return spans.filter(({ parentSpanId }) => !ids.has(parentSpanId))
}

function messageId({ attributes }: StoredSpan): unknown {
  return attributes['messaging.message.id']
}

function linkedTraces(spans: readonly StoredSpan[]): Set<string> {
  return new Set(rootsOf(spans).flatMap(({ links }) => links.map(({ traceId }) => traceId)))
}

/** Without what is another one in each test. */
function general(tree: string, env: Readonly<Record<string, string>>): string {
  return tree.replaceAll(String(env.TOPIC_PREFIX), '').replaceAll(/test_\w+/g, 'orders')
}
