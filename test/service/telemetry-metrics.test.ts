/** The metrics of several threads at one place. */

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { expect, test } from '@jest/globals'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { eventually } from '../../src/messaging/testing/index.ts'
import type { MetricFamily } from '../../src/service/telemetry-merge.ts'
import { MainMetrics } from '../../src/service/telemetry-metrics.ts'
import { prometheusName, writePrometheusText } from '../../src/service/telemetry-prometheus.ts'

const preload = new URL('../../src/service/telemetry.ts', import.meta.url).href
const counting = new URL('../support/telemetry/counting-thread.ts', import.meta.url)

function createMain() {
  const main = new MainMetrics('main')
  const provider = new MeterProvider({ readers: [main.reader] })
  return { main, meter: provider.getMeter('test'), [Symbol.dispose]: () => main.close() }
}

function counter(name: string, value: number, attributes = {}): MetricFamily {
  return { name, unit: '{message}', description: 'Counted', kind: 'counter', samples: [{ attributes, value }] }
}

function gauge(name: string, value: number, attributes = {}): MetricFamily {
  return { name, unit: '{key}', description: 'Measured', kind: 'gauge', samples: [{ attributes, value }] }
}

test('PC-75 counters of all threads add up, and a restart takes nothing away', async () => {
  using main = createMain()
  main.meter.createCounter('work', { description: 'Counted' }).add(1)
  const report = (instance: string, run: string, value: number, ended = false) =>
    main.main.receive({ instance, run, ended, families: [counter('work', value)] })

  report('relay-0', 'a', 10)
  report('relay-1', 'b', 5)
  expect(await read(main.main, 'work_total')).toBe(16)
  report('relay-0', 'a', 12, true)
  expect(await read(main.main, 'work_total')).toBe(18)
  report('relay-0', 'c', 0)
  expect(await read(main.main, 'work_total')).toBe(18)
  report('relay-0', 'c', 7)
  report('relay-0', 'd', 1)

  expect(await read(main.main, 'work_total')).toBe(1 + 12 + 7 + 1 + 5)
})

test('PC-75 gauges go with their thread, and the thread is shown as down', async () => {
  using main = createMain()
  const families = [gauge('held', 3)]
  main.main.receive({ instance: 'relay-0', run: 'a', ended: false, families })
  expect(await main.main.collect()).toMatch(/^held 3$/m)

  main.main.receive({ instance: 'relay-0', run: 'a', ended: true, families })

  const text = await main.main.collect()
  expect(text).not.toMatch(/^held/m)
  expect(text).toMatch(/^service_thread_up\{thread="relay-0"\} 0$/m)
  expect(text).toMatch(/^service_thread_up\{thread="main"\} 1$/m)
})

test('what describes a thread keeps it as a label, and the higher of two equal gauges stands', async () => {
  using main = createMain()
  main.meter.createGauge('nodejs.eventloop.delay.p99', { description: 'Delay', unit: 's' }).record(0.5)
  for (const [index, instance] of ['relay-0', 'relay-1'].entries()) {
    main.main.receive({ instance, run: instance, ended: false, families: [gauge('outbox.topic.paused', index)] })
  }

  const text = await main.main.collect()

  expect(text).toMatch(/^nodejs_eventloop_delay_p99_seconds\{thread="main"\} 0.5$/m)
  expect(text).toMatch(/^outbox_topic_paused 1$/m)
})

test('histograms add up bucket by bucket', async () => {
  using main = createMain()
  const family = (counts: number[], sum: number): MetricFamily => ({
    name: 'delay',
    unit: 's',
    description: 'Waited',
    kind: 'histogram',
    samples: [
      { attributes: { d: 'x' }, value: { boundaries: [1, 5], counts, count: counts.reduce((a, b) => a + b), sum } },
    ],
  })
  main.main.receive({ instance: 'a', run: 'a', ended: false, families: [family([1, 2, 3], 30)] })
  main.main.receive({ instance: 'b', run: 'b', ended: false, families: [family([1, 0, 1], 8)] })

  const text = await main.main.collect()

  expect(text.split('\n').filter((line) => line.includes('delay'))).toEqual([
    '# HELP delay_seconds Waited',
    '# TYPE delay_seconds histogram',
    'delay_seconds_bucket{d="x",le="1"} 2',
    'delay_seconds_bucket{d="x",le="5"} 4',
    'delay_seconds_bucket{d="x",le="+Inf"} 8',
    'delay_seconds_sum{d="x"} 38',
    'delay_seconds_count{d="x"} 8',
  ])
})

test.each([
  ['outbox.pending.oldest.age', 's', 'gauge', 'outbox_pending_oldest_age_seconds'],
  ['outbox.relay.published.messages', '{message}', 'counter', 'outbox_relay_published_messages_total'],
  ['process.cpu.time', 's', 'counter', 'process_cpu_time_seconds_total'],
  ['process.memory.usage', 'By', 'gauge', 'process_memory_usage_bytes'],
  ['nodejs.eventloop.utilization', '1', 'gauge', 'nodejs_eventloop_utilization_ratio'],
] as const)('%s in %s is %s in Prometheus', (name, unit, kind, expected) => {
  expect(prometheusName({ name, unit, kind })).toBe(expected)
})

test('what is odd in a label is escaped', () => {
  const text = writePrometheusText([gauge('g', 1, { 'a.b': 'say "x"\\\n' })])

  expect(text).toContain('g{a_b="say \\"x\\"\\\\\\n"} 1')
})

test('PC-69 PC-75 a worker thread that stops has told everything, and one that is killed nearly everything', async () => {
  const main = new MainMetrics('main')
  using _closed = { [Symbol.dispose]: () => main.close() }
  void new MeterProvider({ readers: [main.reader] })
  await using workers = new AsyncDisposableStack()
  const start = async (instance: string) => {
    const telemetry = { serviceName: 'outbox-relay', instance }
    const worker = new Worker(counting, { workerData: { telemetry }, execArgv: ['--import', preload] })
    workers.defer(async () => void (await worker.terminate()))
    await once(worker, 'message')
    return worker
  }

  const stopping = await start('relay-0')
  stopping.postMessage('stop')
  await once(stopping, 'exit')
  expect(await read(main, 'outbox_relay_published_messages_total')).toBe(1_000)

  const killed = await start('relay-1')
  await eventually('its report', async () => (await read(main, 'outbox_relay_published_messages_total')) === 2_000)
  await killed.terminate()
  const restarted = await start('relay-1')
  restarted.postMessage('stop')
  await once(restarted, 'exit')
  expect(await read(main, 'outbox_relay_published_messages_total')).toBe(3_000)
})

async function read(main: MainMetrics, name: string): Promise<number> {
  const line = (await main.collect())
    .split('\n')
    .find((each) => each.startsWith(`${name} `) || each.startsWith(`${name}{`))
  return Number(line?.split(' ').at(-1))
}
