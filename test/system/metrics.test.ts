/** The metrics of the whole service with four relay threads, as Prometheus would see them. */

import { afterAll, beforeAll, expect, test } from '@jest/globals'
import knex from 'knex'
import { foreignMetrics } from '../../observability/foreign-metrics.ts'
import { knownMetrics, queryableLabels } from '../../observability/metric-names.ts'
import { appendToOutbox, inTransaction } from '../../src/messaging/index.ts'
import { prometheusName } from '../../src/service/telemetry-prometheus.ts'
import { type OtlpSink, startOtlpSink } from '../support/otlp/sink.ts'
import type { Service } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { placeOrder, readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

const EVENT_COUNT = 1_000

let stack: SystemStack
let service: Service
let sink: OtlpSink
let env: Record<string, string>
beforeAll(async () => {
  stack = await startSystemStack({ durable: false })
  sink = await startOtlpSink()
  env = await stack.freshEnv()
  service = await startReadyService(stack.dir, {
    ...env,
    RELAY_THREADS: '4',
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_METRICS_EXPORTER: 'otlp',
    OTEL_METRIC_EXPORT_INTERVAL: '1000',
  })
  await placeOrder(service)
  await untilPublished(1)
})
afterAll(async () => {
  await service?.[Symbol.asyncDispose]()
  await sink?.[Symbol.asyncDispose]()
  await stack?.[Symbol.asyncDispose]()
})

test('PC-75 the published counter of four threads only rises, and reaches every event', async () => {
  const series = (await readMetrics(service)).split('\n').filter((line) => line !== '' && !line.startsWith('#')).length

  const seen: number[] = []
  const scrapes = until('Every event in the counter', async () => {
    const count = await published()
    seen.push(count)
    return count > EVENT_COUNT ? true : null
  })
  await Promise.all([appendOrders(EVENT_COUNT), scrapes])
  seen.push(await published())

  expect(seen).toEqual(seen.toSorted((a, b) => a - b))
  expect(seen.at(-1)).toBe(1 + EVENT_COUNT)
  // What threads come to report only later is some hundred; by key or event there would be a thousand more.
  const later = (await readMetrics(service)).split('\n').filter((line) => line !== '' && !line.startsWith('#')).length
  expect(later - series).toBeLessThan(EVENT_COUNT / 2)
})

test('PC-75 what describes the process is there once, and what describes a thread once a thread', async () => {
  const threads = ['main', 'relay-0', 'relay-1', 'relay-2', 'relay-3', 'consumer']
  const up = threads.map((thread) => `service_thread_up{thread="${thread}"} 1`)
  const lines = await until('A report of each thread', async () => {
    const text = (await readMetrics(service)).split('\n')
    return up.every((line) => text.includes(line)) ? text : null
  })
  const of = (name: string) => lines.filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))

  expect(of('process_memory_usage_bytes')).toHaveLength(1)
  expect(of('process_cpu_time_seconds_total')).toHaveLength(2)
  expect(of('service_thread_up').sort()).toEqual(up.sort())
  expect(of('nodejs_eventloop_delay_p99_seconds')).toHaveLength(threads.length)
})

test('every series has a name, a type and labels that the catalogue knows, and none has a key or an id', async () => {
  const metrics = await readMetrics(service)
  const known = new Map(knownMetrics.map((metric) => [metric.prometheus, metric.kind]))
  const labels = queryableLabels()
  const instrumented = /^(nodejs|v8js|otel|http|db)_/

  const types = [...metrics.matchAll(/^# TYPE (\S+) (\w+)$/gm)].map(([, name = '', kind = '']) => ({ name, kind }))
  const unknown = types.filter(({ name, kind }) => known.get(name) !== kind && !instrumented.test(name))
  const ours = metrics.split('\n').filter((line) => /^(outbox|messaging|service|process)_/.test(line))
  const oddLabels = ours
    .flatMap((line) => [...line.matchAll(/(\w+)="/g)].map(([, label = '']) => label))
    .filter((label) => !labels.has(label))

  expect(unknown).toEqual([])
  expect(oddLabels).toEqual([])
  expect(metrics).not.toMatch(/[\da-f]{8}-[\da-f]{4}-7/)
})

test('the instrumentations show what dashboards and alerts ask of them', async () => {
  const metrics = await readMetrics(service)

  const missing = foreignMetrics
    .filter(({ name }) => !name.startsWith('otel.'))
    .map((metric) => prometheusName(metric))
    .filter((name) => !metrics.includes(`# TYPE ${name} `))
  expect(missing).toEqual([])
})

test('the metrics of a service that has done some work', async () => {
  const types = await allTypes()

  // Without those that come with a fault, such as a broker that is still starting.
  const faults = /^outbox_(relay_retries|topic_paused|traces_detached|dead_lettered)/
  const ours = types.filter((type) => /^(outbox|messaging|service|process)_/.test(type) && !faults.test(type))
  expect(ours).toMatchSnapshot()
})

test('pushed over OTLP metrics have the names and kinds in Prometheus that a scrape shows', async () => {
  // The main thread's own view of the others, made as it is scraped.
  const scrapedOnly = ['service_thread_up gauge']
  await allTypes()
  const differences = async () => {
    const scraped = (await types()).filter((type) => !scrapedOnly.includes(type))
    const pushed = [...new Set(sink.metrics.map((metric) => `${prometheusName(metric)} ${metric.kind}`))]
    return {
      onlyScraped: scraped.filter((type) => !pushed.includes(type)),
      onlyPushed: pushed.filter((type) => !scraped.includes(type)),
    }
  }

  // What is new is at both places within a second, in either order.
  await until(
    'Nothing at one place alone',
    async () => {
      const { onlyScraped, onlyPushed } = await differences()
      return onlyScraped.length + onlyPushed.length === 0 ? true : null
    },
    30_000,
  ).catch(() => {})

  expect(await differences()).toEqual({ onlyScraped: [], onlyPushed: [] })
})

/** The name and kind of each metric of a scrape. */
async function types(): Promise<readonly string[]> {
  return [...(await readMetrics(service)).matchAll(/^# TYPE (\S+ \w+)$/gm)].map(([, type = '']) => type)
}

/** The same once those are there that come last: other threads' reports, and a reading of the tables. */
async function allTypes(): Promise<readonly string[]> {
  const late = [
    'outbox_consumer_processed_messages_total counter',
    'outbox_consumer_lag gauge',
    'outbox_pending_count gauge',
  ]
  return await until('The metrics that come last', async () => {
    const found = await types()
    return late.every((type) => found.includes(type)) ? found : null
  })
}

async function published(): Promise<number> {
  const lines = (await readMetrics(service)).split('\n')
  const line = lines.find((each) => each.startsWith('outbox_relay_published_messages_total{'))
  return Number(line?.split(' ').at(-1) ?? 0)
}

async function untilPublished(count: number): Promise<void> {
  await until(`${count} published events`, async () => ((await published()) >= count ? true : null))
}

/** Appends beside the API, each event with a key of its own; the relay's poll finds them. */
async function appendOrders(count: number): Promise<void> {
  const db = knex({ client: 'pg', connection: String(env.DATABASE_URL) })
  await using _pool = { [Symbol.asyncDispose]: () => db.destroy() }
  const events = Array.from({ length: count }, (_, n) => ({
    type: 'OrderNoted',
    aggregate: { type: 'order', id: `order-${n}` },
    payload: { n },
  }))
  await inTransaction(db, (trx) => appendToOutbox(trx, events))
}
