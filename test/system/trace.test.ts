/** Traces of the whole service, as a collector receives them: its real command, its threads, a real Postgres and a real Kafka. */

import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { startJaeger } from '../../src/local/jaeger.ts'
import { buildJaeger, canBuildJaeger, jaegerBinary } from '../../src/local/jaeger-binary.ts'
import type { ExportedSpan } from '../support/otlp/decode-traces.ts'
import { startOtlpSink } from '../support/otlp/sink.ts'
import type { Service } from '../support/system/service.ts'
import { placeOrder, readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { startTestStack, type TestStack } from '../support/telemetry/stack.ts'
import { until } from '../support/telemetry/wait.ts'

let stack: TestStack
beforeAll(async () => {
  stack = await startTestStack()
}, 60_000)
afterAll(async () => {
  await stack[Symbol.asyncDispose]()
})

const KINDS = ['', 'internal', 'server', 'client', 'producer', 'consumer']

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
  expect(
    outline(spans)
      .replaceAll(String(env.TOPIC_PREFIX), '')
      .replaceAll(/test_\w+/g, 'orders'),
  ).toMatchSnapshot()
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
}, 90_000)

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
}, 90_000)

test('PC-69 PC-73 a collector that has gone silent slows neither events nor the stop', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using service = await startReadyService(stack.dir, { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })
  sink.hang()

  for (let n = 0; n < 50; n++) await placeOrder(service)
  await untilMetric(service, 'outbox_relay_published_messages_total', 50)
  const from = performance.now()
  expect(await service.kill('SIGTERM')).toBe('exit code 0')

  expect(performance.now() - from).toBeLessThan(15_000)
  expect(sink.unansweredCount).toBeGreaterThan(0)
}, 90_000)

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

  await sink.until((spans) => spans.some((span) => span.traceId === traceId && span.name.startsWith('process')), 30_000)
}, 90_000)

const jaeger = (await jaegerBinary()) ?? ((await canBuildJaeger()) ? 'to be built' : null)
const withJaeger = jaeger === null ? test.skip : test

withJaeger(
  'Jaeger shows the mutation and its effect as one trace of three services',
  async () => {
    const binary = (await jaegerBinary()) ?? (await buildJaeger({ signal: AbortSignal.timeout(900_000) }))
    await using server = await startJaeger({ binary, dir: join(stack.dir, 'jaeger') })
    const env = await stack.freshEnv()
    await using service = await startReadyService(stack.dir, {
      ...env,
      OTEL_EXPORTER_OTLP_ENDPOINT: server.otlpEndpoint,
    })

    const { traceId } = await placeOrder(service)
    const services = await untilTraced(server.url, traceId, `process ${env.TOPIC_PREFIX}order.events`)

    expect(services).toEqual(new Set(['orders-api', 'outbox-relay', 'orders-summary']))
  },
  960_000,
)

function has(spans: readonly ExportedSpan[], name: string): boolean {
  return spans.some((span) => span.name === name)
}

/** The tree as indented lines, siblings by name, and equal ones once: how many statements a commit takes is not the point. */
function outline(spans: readonly ExportedSpan[], parent = '', depth = 0): string {
  const children = spans
    .filter(({ parentSpanId }) => parentSpanId === parent)
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((span) => {
      const failed = span.status === 2 ? ' ERROR' : ''
      const line = `${'  '.repeat(depth)}${span.name} | ${KINDS[span.kind]} ${span.service}${failed}`
      return `${line}\n${outline(spans, span.spanId, depth + 1)}`
    })
  return [...new Set(children)].join('')
}

async function untilMetric(service: Service, name: string, least: number): Promise<void> {
  await until(`${least} in ${name}`, async () => {
    const [, value = '0'] = new RegExp(`^${name}\\{.*\\} (\\d+)`, 'm').exec(await readMetrics(service)) ?? []
    return Number(value) >= least ? true : null
  })
}

async function untilLogged(service: Service, start: string): Promise<void> {
  await until(
    `A line of the log with ${start}`,
    async () => (await service.log()).find(({ msg }) => String(msg).startsWith(start)) ?? null,
  )
}

interface ResourceSpans {
  readonly resource: {
    readonly attributes: readonly { readonly key: string; readonly value: { readonly stringValue?: string } }[]
  }
  readonly scopeSpans: readonly { readonly spans: readonly { readonly name: string }[] }[]
}

/** Asks Jaeger until the trace has a span of that name; resolves to the services in it. 404 means not stored yet. */
async function untilTraced(url: string, traceId: string, span: string): Promise<Set<string | undefined>> {
  return await until(`The span ${span} in Jaeger`, async () => {
    const response = await fetch(`${url}/api/v3/traces/${traceId}`)
    const { result } = response.ok ? ((await response.json()) as { result: { resourceSpans: ResourceSpans[] } }) : {}
    const parts = result?.resourceSpans ?? []
    if (!parts.some(({ scopeSpans }) => scopeSpans.some(({ spans }) => spans.some(({ name }) => name === span)))) {
      return null
    }
    return new Set(
      parts.map(({ resource }) => resource.attributes.find(({ key }) => key === 'service.name')?.value.stringValue),
    )
  })
}
