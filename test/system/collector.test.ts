/** What a collector of traces can do to the service: nothing but take its spans or lose them. Everything is traced, as by default. */
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
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
/** Events of a round of which only the time or the memory counts. */
const ROUND = LONG ? BURST : 800
/** Rounds with the collector well and broken, by turns. */
const ROUNDS = LONG ? 5 : 3
/** Of the throughput with a collector that is well, what one that is broken has to leave. A short round is a second's work, on whatever machine. */
const LEAST_SHARE = LONG ? 0.8 : 0.5
/** Milliseconds; the long form takes hundreds of thousands of events through. */
const PATIENCE_MS = LONG ? 600_000 : 120_000

type Settings = Readonly<Record<string, string>>
const { batch } = readTelemetryConfig({})
/** The long form has the product's own settings; the short one queues of its scale, and where it says so no limit of time that a busy machine could meet. */
const queue: Settings = LONG
  ? {}
  : {
      OTEL_BSP_MAX_QUEUE_SIZE: String(Math.floor(batch.maxQueueSize / SCALE)),
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: String(Math.floor(batch.maxExportBatchSize / SCALE)),
    }
/** Milliseconds in which a span arrives that found room in its queue: of a few pauses between two exports. */
const ARRIVAL_MS = LONG ? 20_000 : 4_000
const patient: Settings = LONG ? {} : { OTEL_EXPORTER_OTLP_TIMEOUT: '100000', OTEL_BSP_EXPORT_TIMEOUT: '100000' }

/** A black hole: for how long it lasts at least, and how many bursts come meanwhile: several times the spans that queues take. */
const HOLE = LONG ? { ms: 120_000, bursts: 10 } : { ms: 5_000, bursts: 6 }
/** Spans of a thread that wait at most while it lasts: too few to hide, beside the rest, what would grow without a bound. */
const HOLE_QUEUE = LONG ? batch.maxQueueSize : 1_000
/**
 * Bytes that they may take: two threads make spans, and each holds a full queue
 * and, under way in requests that nobody answers, at most as many again.
 */
const HOLE_BYTES = 2 * 2 * HOLE_QUEUE * 1_500
/** Bytes by which a service at rest differs from time to time. */
const SLACK_BYTES = 12e6

const preload = new URL('../../src/service/telemetry.ts', import.meta.url).href
const liveMemory = new URL('../support/telemetry/live-memory.ts', import.meta.url).href
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
    expect(await counted(service)).toMatchObject({ dropped: 0, failed: 0 })
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
  'PC-73 a collector that %s takes no throughput, and has spans again by itself',
  async (_, breakIt) => {
    await using sink = await startOtlpSink()
    // Each round with a broken collector fills it: a consumer makes two spans of an event.
    const env = await traced(sink, { ...queue, OTEL_BSP_MAX_QUEUE_SIZE: String(ROUND) })
    await using service = await startReadyService(stack.dir, env)
    await using effects = countEffects(env)
    let appended = 0
    /** Milliseconds from the append to the last effect. */
    async function drain(): Promise<number> {
      const begun = performance.now()
      await appendBurst(env.DATABASE_URL ?? '', ROUND)
      appended += ROUND
      await effects.until(appended)
      return performance.now() - begun
    }
    await drain()

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
    await until('A counted loss', async () => ((await counted(service)).dropped > 0 ? true : null))

    expect(shares.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)]).toBeGreaterThan(LEAST_SHARE)
    expect(Math.max(...queues)).toBeLessThanOrEqual(ROUND)
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
          .until(() => isThere('POST ') && isThere('send ') && isThere('process '), ARRIVAL_MS)
          .catch(() => null)
      },
      PATIENCE_MS,
    )
  },
  4 * PATIENCE_MS,
)

test(
  `PC-73 a black hole of ${HOLE.ms / 1_000} s takes the memory of full queues and gives it back, also a second time, and each span arrives or is counted`,
  async () => {
    await using sink = await startOtlpSink()
    const memoryDir = await mkdtemp(join(stack.dir, 'memory-'))
    const env = await traced(sink, {
      ...queue,
      ...(LONG ? {} : { OTEL_BSP_MAX_QUEUE_SIZE: String(HOLE_QUEUE) }),
      RELAY_THREADS: '1',
      NODE_OPTIONS: `--import ${liveMemory}`,
      TEST_MEMORY_DIR: memoryDir,
    })
    await using service = await startReadyService(stack.dir, env)
    await using effects = countEffects(env)
    let appended = 0
    async function drain(): Promise<void> {
      await appendBurst(env.DATABASE_URL ?? '', ROUND)
      appended += ROUND
      await effects.until(appended)
    }
    /** The most that is held while it lasts. */
    async function blackHole(): Promise<number> {
      const ends = performance.now() + HOLE.ms
      const held: number[] = []
      sink.hang()
      for (let bursts = 0; bursts < HOLE.bursts; bursts += 1) {
        await drain()
        held.push(await bytesHeld(memoryDir))
      }
      await sleep(Math.max(0, ends - performance.now()))
      await sink.answer()
      return Math.max(...held)
    }
    /** Of each event there is a span that sends it, one that processes and one that remembers it. */
    async function accountedFor(): Promise<void> {
      await until(
        'The fate of every span',
        async () => {
          const { arrived, dropped, failed } = await counted(service)
          return arrived + dropped + failed >= 3 * appended ? true : null
        },
        PATIENCE_MS,
      )
    }
    await drain()
    await accountedFor()
    const before = await bytesHeld(memoryDir)

    const during: number[] = []
    const after: number[] = []
    for (let hole = 0; hole < 2; hole += 1) {
      during.push(await blackHole())
      await accountedFor()
      after.push(await bytesHeld(memoryDir))
    }
    const { dropped, failed } = await counted(service)

    expect(Math.max(...during) - before).toBeLessThan(HOLE_BYTES + SLACK_BYTES)
    expect(Math.max(...after) - before).toBeLessThan(SLACK_BYTES)
    // Several times what the queues hold: without their bound it would be held as well.
    expect(dropped + failed).toBeGreaterThan(4 * HOLE_QUEUE)
    await until('As many spans as are counted to have arrived', async () =>
      (await counted(service)).arrived === sink.spans.length ? true : null,
    )
  },
  4 * PATIENCE_MS,
)

/** A database and topics of a test's own, and everything traced to `sink`. */
async function traced(sink: OtlpSink, settings: Settings): Promise<Record<string, string>> {
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

async function queueSizes(service: Service): Promise<readonly number[]> {
  return (await valuesOf(service, 'otel_sdk_processor_span_queue_size')).map(([, value]) => value)
}

/** Spans that wait in any thread. */
async function queued(service: Service): Promise<number> {
  return (await queueSizes(service)).reduce((sum, size) => sum + size, 0)
}

/** What became of spans, in all threads: exported, dropped since a queue was full, or lost with a request that failed. */
async function counted(service: Service): Promise<{ arrived: number; dropped: number; failed: number }> {
  const values = await valuesOf(service, 'otel_sdk_processor_span_processed_total')
  const sums = { arrived: 0, dropped: 0, failed: 0 }
  for (const [labels, value] of values) {
    const [, error] = /error_type="([^"]+)"/.exec(labels) ?? []
    sums[error === undefined ? 'arrived' : error === 'queue_full' ? 'dropped' : 'failed'] += value
  }
  return sums
}

/** Bytes that the threads of a service hold, once each has collected its garbage. */
async function bytesHeld(dir: string): Promise<number> {
  const question = randomUUID()
  await writeFile(join(dir, 'asked.new'), question)
  await rename(join(dir, 'asked.new'), join(dir, 'asked'))
  return await until('The memory of every thread', async () => {
    const files = (await readdir(dir)).filter((name) => /^thread-\d+$/.test(name))
    const answers = await Promise.all(files.map(async (name) => (await readFile(join(dir, name), 'utf8')).split(' ')))
    if (answers.length === 0 || answers.some(([answered]) => answered !== question)) return null
    return answers.reduce((sum, [, bytes]) => sum + Number(bytes), 0)
  })
}
