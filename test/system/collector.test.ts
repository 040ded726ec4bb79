/** What a collector of traces can do to the service: nothing but take its spans or lose them. Everything is traced, as by default. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import knex from 'knex'
import { readTelemetryConfig } from '../../src/service/telemetry-config.ts'
import { type OtlpSink, startOtlpSink } from '../support/otlp/sink.ts'
import type { Service } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { appendBurst } from '../support/telemetry/burst.ts'
import { placeOrder, readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

const LONG = process.env.TEST_LONG === '1'
/** The short form has a tenth of everything: of the events, and of the queues that hold their spans. */
const SCALE = LONG ? 1 : 10
const BURST = 20_000 / SCALE
/** Rounds with the collector well and broken, by turns. */
const ROUNDS = LONG ? 5 : 3
/** Of the throughput with a collector that is well, what one that is broken has to leave. A short round is a second's work, on whatever machine. */
const LEAST_SHARE = LONG ? 0.8 : 0.5
/** Milliseconds; the long form takes hundreds of thousands of events through. */
const PATIENCE_MS = LONG ? 600_000 : 120_000

const { batch } = readTelemetryConfig({})
/** The queue's own settings, as by default; and no limit of time that a busy machine could meet. */
const queue = {
  OTEL_BSP_MAX_QUEUE_SIZE: String(Math.floor(batch.maxQueueSize / SCALE)),
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: String(Math.floor(batch.maxExportBatchSize / SCALE)),
}
const patient = { OTEL_EXPORTER_OTLP_TIMEOUT: '100000', OTEL_BSP_EXPORT_TIMEOUT: '100000' }

const preload = new URL('../../src/service/telemetry.ts', import.meta.url).href
const burstProcess = fileURLToPath(new URL('../support/telemetry/burst-process.ts', import.meta.url))

let stack: SystemStack
beforeAll(async () => {
  stack = await startSystemStack({ durable: false })
})
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]()
})

test(
  `PC-73 of ${BURST} events at once every span arrives: of those that appended, sent and processed them`,
  async () => {
    await using sink = await startOtlpSink()
    const env = await traced(sink, { ...queue, ...patient })
    await using service = await startReadyService(stack.dir, env)
    await using effects = countEffects(env)

    // A process of its own: there the spans of all of them end in one turn of the loop.
    const appending = spawn(process.execPath, ['--import', preload, burstProcess], {
      env: { PATH: process.env.PATH, ...env, TEST_COUNT: String(BURST), TEST_DATABASE_URL: env.DATABASE_URL ?? '' },
      stdio: 'inherit',
    })
    expect(await once(appending, 'exit')).toEqual([0, null])
    await effects.until(BURST)
    await until('An empty queue', async () => ((await queued(service)) === 0 ? true : null), PATIENCE_MS)
    expect(await service.kill('SIGTERM')).toBe('exit code 0')

    const counts = Object.entries(Object.groupBy(sink.spans, ({ name }) => name.split(' ')[0] ?? '')).map(
      ([kind, spans = []]) => [kind, spans.length],
    )
    expect(Object.fromEntries(counts)).toMatchObject({ create: BURST, send: BURST, process: BURST, dedupe: BURST })
    const ofEvents = new Set(sink.spans.map(({ attributes }) => attributes['messaging.message.id']).filter(Boolean))
    expect(ofEvents.size).toBe(BURST)
  },
  2 * PATIENCE_MS,
)

test.each([
  ['never answers', (sink: OtlpSink) => sink.hang()],
  ['answers after 5 s', (sink: OtlpSink) => sink.delay(5_000)],
  ['refuses', (sink: OtlpSink) => sink.refuse()],
])(
  'PC-73 a collector that %s takes no throughput and no more memory than its queue, and has spans again by itself',
  async (_, breakIt) => {
    await using sink = await startOtlpSink()
    // Each round with a broken collector fills it: a consumer makes two spans of an event.
    const env = await traced(sink, { ...queue, OTEL_BSP_MAX_QUEUE_SIZE: String(BURST) })
    await using service = await startReadyService(stack.dir, env)
    await using effects = countEffects(env)
    let appended = 0
    /** Milliseconds from the append to the last effect. */
    async function drain(): Promise<number> {
      const begun = performance.now()
      await appendBurst(env.DATABASE_URL ?? '', BURST)
      appended += BURST
      await effects.until(appended)
      return performance.now() - begun
    }
    await drain()
    const memory = await sumOf(service, 'process_memory_usage_bytes')

    const shares: number[] = []
    const queues: number[] = []
    for (let round = 0; round < ROUNDS; round += 1) {
      await sink.answer()
      sink.forget()
      const well = await drain()
      await breakIt(sink)
      shares.push(well / (await drain()))
      queues.push(...(await queueSizes(service)))
    }
    await until('A counted loss', async () => ((await lost(service)) > 0 ? true : null))

    expect(shares.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)]).toBeGreaterThan(LEAST_SHARE)
    expect(Math.max(...queues)).toBeLessThanOrEqual(BURST)
    expect((await sumOf(service, 'process_memory_usage_bytes')) - memory).toBeLessThan(600e6)
    await sink.answer()
    sink.forget()
    await until('A line about the loss', async () => {
      const lines = await service.log()
      return lines.find(({ msg }) => /^Telemetry: \d+ spans were dropped/.test(String(msg))) ?? null
    })
    // One that comes too early may find the queue still full; another is placed then.
    await until(
      'A whole trace of a new mutation',
      async () => {
        const { traceId } = await placeOrder(service)
        const isThere = (word: string) =>
          sink.spans.some((span) => span.traceId === traceId && span.name.startsWith(word))
        return await sink
          .until(() => isThere('POST ') && isThere('send ') && isThere('process '), 20_000)
          .catch(() => null)
      },
      PATIENCE_MS,
    )
  },
  4 * PATIENCE_MS,
)

/** A database and topics of a test's own, and everything traced to `sink`. */
async function traced(sink: OtlpSink, settings: Readonly<Record<string, string>>): Promise<Record<string, string>> {
  return { ...(await stack.freshEnv()), ...settings, OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint }
}

/** Looks at the effects of events, of which each has one row in the memory of its consumer. */
function countEffects({ DATABASE_URL = '' }: Readonly<Record<string, string>>) {
  const db = knex({ client: 'pg', connection: DATABASE_URL })
  return {
    async until(count: number): Promise<void> {
      await until(
        `${count} effects`,
        async () => {
          const [row] = await db('processed_events').count({ count: '*' })
          return Number(row?.count) >= count ? true : null
        },
        PATIENCE_MS,
      )
    },
    [Symbol.asyncDispose]: () => db.destroy(),
  }
}

/** The value of each of a metric's series. */
async function valuesOf(
  service: Service,
  name: string,
): Promise<readonly (readonly [labels: string, value: number])[]> {
  const lines = (await readMetrics(service))
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
  return lines.map((line) => [line.slice(name.length, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))])
}

async function sumOf(service: Service, name: string): Promise<number> {
  return (await valuesOf(service, name)).reduce((sum, [, value]) => sum + value, 0)
}

async function queueSizes(service: Service): Promise<readonly number[]> {
  return (await valuesOf(service, 'otel_sdk_processor_span_queue_size')).map(([, value]) => value)
}

/** Spans that wait in any thread. */
async function queued(service: Service): Promise<number> {
  return await sumOf(service, 'otel_sdk_processor_span_queue_size')
}

/** Spans that found a queue full. */
async function lost(service: Service): Promise<number> {
  const values = await valuesOf(service, 'otel_sdk_processor_span_processed_total')
  return values.filter(([labels]) => labels.includes('"queue_full"')).reduce((sum, [, value]) => sum + value, 0)
}
