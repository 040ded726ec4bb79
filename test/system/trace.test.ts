/** Traces of the whole service, as a collector receives them: its real command, its threads, a real Postgres and a real Kafka. */

import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { ExportedSpan } from '../support/otlp/decode-traces.ts'
import { startOtlpSink } from '../support/otlp/sink.ts'
import type { Service } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { startOneThread } from '../support/telemetry/one-thread.ts'
import { outline } from '../support/telemetry/outline.ts'
import { placeOrder, readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

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
