/** Traces of the whole service, as a collector receives them: its real command, its threads, a real Postgres and a real Kafka. */

import { afterAll, beforeAll, expect, test } from '@jest/globals'
import knex from 'knex'
import { appendToOutbox, inTransaction } from '../../src/messaging/index.ts'
import type { ExportedSpan } from '../support/otlp/decode-traces.ts'
import { startOtlpSink } from '../support/otlp/sink.ts'
import type { Service } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { startOneThread } from '../support/telemetry/one-thread.ts'
import { outline } from '../support/telemetry/outline.ts'
import { placeOrder, readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

/** The long form drains what the case names. */
const LONG = process.env.TEST_LONG === '1'
const BURST = LONG ? 20_000 : 4_000
const BLACK_HOLE_MS = LONG ? 120_000 : 10_000

let stack: SystemStack
beforeAll(async () => {
  stack = await startSystemStack({ durable: false })
})
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]()
})

test('PC-70 PC-71 a mutation, its event and its effect are one trace, across three services and four threads', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })
  const topic = `${env.TOPIC_PREFIX}order.events`

  const { traceId, eventIds } = await placeOrder(service)
  await sink.until((spans) => has(spans, `process ${topic}`) && has(spans, 'POST /graphql'))
  await service.kill('SIGTERM')

  const spans = sink.spans.filter((span) => span.traceId === traceId)
  // Polling, migrations and housekeeping leave none.
  expect(sink.spans.filter(({ parentSpanId, name }) => parentSpanId === '' && name !== 'POST /graphql')).toEqual([])
  expect(spans.length).toBeLessThanOrEqual(24)
  expect(general(outline(spans), env)).toMatchSnapshot()
  const send = spans.find(({ name }) => name === `send ${topic}`)
  const process = spans.find(({ name }) => name === `process ${topic}`)
  expect(send?.links).toEqual([{ traceId: send?.traceId, spanId: send?.parentSpanId }])
  expect(process?.links).toEqual([{ traceId: process?.traceId, spanId: process?.parentSpanId }])
  expect(process?.attributes).toMatchObject({
    'messaging.message.id': eventIds[0],
    'messaging.consumer.group.name': `${env.TOPIC_PREFIX}orders-summary`,
    'outbox.result': 'processed',
    'outbox.event.type': 'OrderPlaced',
  })
  expect((await service.log()).filter(({ msg }) => String(msg).startsWith('Telemetry'))).toEqual([])
})

test('PC-71 with everything in the main thread the tree is the same', async () => {
  await using sink = await startOtlpSink()
  const [env, threadedEnv] = [await stack.freshEnv(), await stack.freshEnv()]
  const traced = { OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint }
  const trees: string[] = []
  {
    await using service = await startReadyService(stack.dir, { ...threadedEnv, ...traced })
    const { traceId } = await placeOrder(service)
    await sink.until((spans) => isWhole(spans.filter((span) => span.traceId === traceId)))
    await service.kill('SIGTERM')
    trees.push(general(outline(sink.spans.filter((span) => span.traceId === traceId)), threadedEnv))
  }
  {
    await using process = await startOneThread({ ...env, ...traced })
    await process.tell('start relay')
    await process.tell('start consumers')
    const { traceId } = await placeOrder(process)
    await sink.until((spans) => isWhole(spans.filter((span) => span.traceId === traceId)))
    await process.tell('stop')
    trees.push(general(outline(sink.spans.filter((span) => span.traceId === traceId)), env))
  }

  const [threaded, alone] = trees.map((tree) =>
    tree.replaceAll(/(orders-api|outbox-relay|orders-summary)$/gm, 'service'),
  )
  expect(alone).toBe(threaded)
})

test('PC-69 a stop right after a mutation loses no span of it', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })

  const { traceId } = await placeOrder(service)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(await service.kill('SIGTERM')).toBe('exit code 0')

  const ours = sink.spans.filter((span) => span.traceId === traceId)
  const ids = new Set(ours.map(({ spanId }) => spanId))
  const orphans = ours.filter(({ parentSpanId }) => parentSpanId !== '' && !ids.has(parentSpanId))
  expect(orphans).toEqual([])
  const names = ['POST /graphql', 'mutation PlaceOrder', `create ${env.TOPIC_PREFIX}order.events`]
  expect(ours.map(({ name }) => name)).toEqual(expect.arrayContaining(names))
})

test('PC-69 PC-73 a collector that has gone silent slows neither events nor the stop', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })
  sink.hang()

  for (let n = 0; n < 50; n++) await placeOrder(service)
  await untilMetric(service, 'outbox_relay_published_messages_total', 50)
  // It stays silent, so that nothing but the service's own patience can end the stop.
  expect(await service.kill('SIGTERM')).toBe('exit code 0')

  expect(sink.unansweredCount).toBeGreaterThan(0)
})

test(`PC-73 ${BURST} events drained at once keep their spans, or have each lost one counted`, async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })

  await appendOrders(env, BURST)
  await untilMetric(service, 'outbox_relay_published_messages_total', BURST)
  const sends = () => sink.spans.filter(({ name, kind }) => name.startsWith('send ') && kind === 4).length
  const droppedCount = async () =>
    await sumOf(service, 'otel_sdk_processor_span_processed_total', 'queue_full', 'relay-0')
  await until('The span of each event, or its loss', async () =>
    sends() + (await droppedCount()) >= BURST ? true : null,
  )

  expect(sends()).toBeGreaterThan(BURST / 2)
})

test(`PC-73 a collector that hangs for ${BLACK_HOLE_MS / 1_000} s costs spans and nothing else, and gets them again afterwards`, async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, {
    ...env,
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_EXPORTER_OTLP_TIMEOUT: '2000',
    OTEL_BSP_EXPORT_TIMEOUT: '3000',
    // So small that each run of the test fills it, however slowly: a batch of them goes every two seconds.
    OTEL_BSP_MAX_QUEUE_SIZE: String(Math.floor(BURST / 20)),
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: String(Math.floor(BURST / 40)),
  })
  const before = await sumOf(service, 'process_memory_usage_bytes')
  sink.hang()
  const from = performance.now()

  await appendOrders(env, BURST)
  await untilMetric(service, 'outbox_relay_published_messages_total', BURST)
  // What waits for the collector is bounded, and what finds no room is counted.
  expect((await sumOf(service, 'process_memory_usage_bytes')) - before).toBeLessThan(400e6)
  await until('A counted loss', async () => {
    const lost = await sumOf(service, 'otel_sdk_processor_span_processed_total', 'queue_full', 'relay-0')
    return lost > 0 ? true : null
  })
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, BLACK_HOLE_MS - (performance.now() - from))))
  sink.answer()

  // One that came too early may have lost spans; another is placed then.
  await until('A whole trace of a new mutation', async () => {
    const { traceId } = await placeOrder(service)
    const ofTrace = (spans: readonly ExportedSpan[]) => isWhole(spans.filter((span) => span.traceId === traceId))
    return await sink.until(ofTrace, 20_000).catch(() => null)
  })
}, 600_000)

test('PC-73 export goes on by itself once the collector answers again', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, {
    ...env,
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_EXPORTER_OTLP_TIMEOUT: '1000',
    OTEL_BSP_EXPORT_TIMEOUT: '2000',
  })
  sink.hang()
  await placeOrder(service)
  await untilLogged(service, 'Telemetry')
  sink.answer()

  const { traceId } = await placeOrder(service)

  await sink.until((spans) => spans.some((span) => span.traceId === traceId && span.name.startsWith('process')))
})

/** Without what is another one in each test. */
function general(tree: string, env: Readonly<Record<string, string>>): string {
  return tree.replaceAll(String(env.TOPIC_PREFIX), '').replaceAll(/test_\w+/g, 'orders')
}

function isWhole(spans: readonly ExportedSpan[]): boolean {
  return spans.some(({ name }) => name.startsWith('process ')) && has(spans, 'POST /graphql')
}

function has(spans: readonly ExportedSpan[], name: string): boolean {
  return spans.some((span) => span.name === name)
}

async function untilMetric(service: Service, name: string, least: number): Promise<void> {
  await until(`${least} in ${name}`, async () => {
    const [, value = '0'] = new RegExp(`^${name}\\{.*\\} (\\d+)`, 'm').exec(await readMetrics(service)) ?? []
    return Number(value) >= least ? true : null
  })
}

/** The sum of a metric's series that have all of these label values. */
async function sumOf(service: Service, name: string, ...labels: readonly string[]): Promise<number> {
  const lines = (await readMetrics(service)).split('\n').filter((line) => line.startsWith(name))
  const matching = lines.filter((line) => labels.every((label) => line.includes(`"${label}"`)))
  return matching.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
}

/** Appends beside the API; the relay's poll finds them. */
async function appendOrders({ DATABASE_URL = '' }: Readonly<Record<string, string>>, count: number): Promise<void> {
  const db = knex({ client: 'pg', connection: DATABASE_URL })
  await using _pool = { [Symbol.asyncDispose]: () => db.destroy() }
  for (let from = 0; from < count; from += 1_000) {
    const events = Array.from({ length: Math.min(1_000, count - from) }, (_, index) => ({
      type: 'OrderNoted',
      aggregate: { type: 'order', id: `order-${from + index}` },
      payload: { n: from + index },
    }))
    await inTransaction(db, (trx) => appendToOutbox(trx, events))
  }
}

async function untilLogged(service: Service, start: string): Promise<void> {
  await until(
    `A line of the log with ${start}`,
    async () => (await service.log()).find(({ msg }) => String(msg).startsWith(start)) ?? null,
  )
}
