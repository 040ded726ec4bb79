/** The preload in a real process: what it takes from the environment, and what it says of itself. */

import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'
import { readTelemetryConfig } from '../../src/service/telemetry-config.ts'
import { createTestDatabase } from '../support/database.ts'
import type { ExportedSpan } from '../support/otlp/decode-traces.ts'
import { startOtlpSink } from '../support/otlp/sink.ts'

const preload = new URL('../../src/service/telemetry.ts', import.meta.url).href
const script = fileURLToPath(new URL('../support/telemetry/api-process.ts', import.meta.url))
const burst = fileURLToPath(new URL('../support/telemetry/burst-process.ts', import.meta.url))
const bareThreads = fileURLToPath(new URL('../support/telemetry/bare-threads-process.ts', import.meta.url))

test('PC-70 says which expected module is not instrumented, and nothing of those that are', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, { TEST_EXPECTS: 'kafkajs' })

  await api.mutate('sku-1')

  expect(await api.problems(1)).toEqual([expect.stringContaining('kafkajs is not instrumented')])
})

test('without an endpoint nothing is exported, nothing is complained of, and ids are given all the same', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, {})

  const { extensions } = await api.mutate('sku-1')

  expect(extensions.outbox.traceId).toMatch(/^[\da-f]{32}$/)
  const { rows } = await database.db.raw<{ rows: { traceparent: string }[] }>('select traceparent from outbox')
  expect(rows[0]?.traceparent).toContain(extensions.outbox.traceId)
})

test('nothing connects anywhere that nobody asked for: no exporter, no log pipeline, no detector', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, {})
  await api.mutate('sku-1')

  expect(await api.stop()).toEqual([Number(new URL(database.url).port)])
})

test('an endpoint gets traces alone, from a resource that names no command line and no user', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, {
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
    // What would make the SDK log to the console by itself.
    OTEL_LOG_LEVEL: 'warn',
  })
  await api.mutate('sku-1')
  await api.stop()

  expect(new Set(sink.paths)).toEqual(new Set(['/v1/traces']))
  expect(Object.keys(sink.spans[0]?.resource ?? {}).sort()).toEqual([
    'deployment.environment.name',
    'host.arch',
    'host.name',
    'service.instance.id',
    'service.name',
    'telemetry.sdk.language',
    'telemetry.sdk.name',
    'telemetry.sdk.version',
  ])
})

test('metrics are pushed too where that is asked for', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, {
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_METRICS_EXPORTER: 'otlp',
  })
  await api.mutate('sku-1')
  await api.stop()

  expect(new Set(sink.paths)).toEqual(new Set(['/v1/traces', '/v1/metrics']))
})

test('a refused mutation is an error in its trace, though it is answered with 200', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, { OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })

  await api.mutate('')

  const spans = await sink.until((all) => all.some(({ name }) => name === 'POST /graphql'))
  expect(spans.find(({ name }) => name === 'mutation PlaceOrder')?.status).toBe(2)
})

test('a ratio of 0 records nothing and still hands the context on', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase({ orders: true })
  {
    await using api = await startApi(database.url, {
      OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0',
    })
    await api.mutate('sku-1')
  }

  expect(sink.spans).toEqual([])
  const { rows } = await database.db.raw<{ rows: { traceparent: string }[] }>('select traceparent from outbox')
  expect(rows[0]?.traceparent).toMatch(/-00$/)
})

test('PC-71 fifty mutations at once over two connections keep each its own context, in its row and in its spans', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, { OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint, TEST_CONNECTIONS: '2' })
  const requests = Array.from({ length: 50 }, (_, n) => ({ traceId: hex(16), spanId: hex(8), sku: `sku-${n}` }))

  const answers = await Promise.all(
    requests.map(({ sku, traceId, spanId }) => api.mutate(sku, { traceparent: `00-${traceId}-${spanId}-01` })),
  )
  await api.stop()

  const stored = await database.db('outbox').select('id', 'traceparent')
  const traceparents = new Map(stored.map(({ id, traceparent }) => [id, traceparent]))
  const traces = Map.groupBy(sink.spans, ({ traceId }) => traceId)
  const found = answers.map(({ extensions: { outbox } }) => {
    const spans = traces.get(outbox.traceId) ?? []
    const create = spans.find(({ attributes }) => attributes['messaging.message.id'] === outbox.eventIds[0])
    return {
      traceId: outbox.traceId,
      isStored: traceparents.get(outbox.eventIds[0]) === `00-${outbox.traceId}-${create?.spanId}-01`,
      path: pathOf(create, spans),
      inserts: spans.filter(({ name }) => /^insert .*outbox$/.test(name)).length,
    }
  })
  expect(found).toEqual(
    requests.map(({ traceId, spanId }) => ({
      traceId,
      isStored: true,
      path: ['create order.events', 'mutation PlaceOrder', 'POST /graphql', spanId],
      inserts: 1,
    })),
  )
})

test('spans hold the statement and never its values', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, { OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint })

  await api.mutate('canary-5791')

  const spans = await sink.until((all) => all.some(({ name }) => name === 'POST /graphql'))
  const shown = JSON.stringify(spans.map(({ attributes }) => attributes))
  expect(shown).toContain('insert into orders')
  expect(shown).not.toContain('canary-5791')
})

test('whatever is sent to the API, its metrics gain no series but one a known method, route and status', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.url, {})
  const send = async (n: number) => {
    await askFor(`${api.url}/canary-${n}?q=canary-${n}`, { method: 'PROPFIND', host: `canary-${n}.example` })
    await askFor(`${api.url}/graphql/canary-${n}`, { method: 'DELETE' })
    const query = `query Canary${n} { canary${n}: order(id: "canary-${n}") { id } }`
    await askFor(`${api.url}/graphql`, { method: 'POST', body: JSON.stringify({ query, operationName: `Canary${n}` }) })
    await askFor(`${api.url}/graphql`, { method: 'POST', body: `{ "query": "canary${n} {" }` })
  }

  await send(0)
  const before = seriesOf(await api.metrics())
  for (let n = 1; n <= 20; n += 1) await send(n)
  const after = seriesOf(await api.metrics())

  expect(after.filter((series) => !before.includes(series))).toEqual([])
  expect(after.filter((series) => /canary/i.test(series))).toEqual([])
  const counts = after.filter((series) => series.startsWith('http_server_request_duration_seconds_count'))
  expect(counts.map((series) => series.slice(series.indexOf('{')))).toEqual([
    '{http_request_method="DELETE",http_route="/graphql",http_response_status_code="405"}',
    '{http_request_method="POST",http_route="/graphql",http_response_status_code="200"}',
    '{http_request_method="POST",http_route="/graphql",http_response_status_code="400"}',
    '{http_request_method="_OTHER",http_response_status_code="404"}',
  ])
})

test('a stop exports the whole queue, however many batches that is', async () => {
  await using sink = await startOtlpSink()
  await using database = await createTestDatabase()
  const env = {
    TEST_DATABASE_URL: database.url,
    TEST_COUNT: '1000',
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_BSP_MAX_QUEUE_SIZE: '1000',
    // More batches than the exporter sends at once by itself.
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '10',
  }

  const child = spawn(process.execPath, ['--import', preload, burst], {
    env: { PATH: process.env.PATH, ...env },
    stdio: 'inherit',
  })
  await once(child, 'exit')

  expect(sink.spans.filter(({ name }) => name === 'create order.events').length).toBe(1_000)
})

test('PC-70 each thread that the preload did not reach says so in one line, unless telemetry is switched off', async () => {
  const [bare, off] = await Promise.all([linesOfBareThreads({}), linesOfBareThreads({ OTEL_SDK_DISABLED: 'true' })])

  const telling = ({ msg }: LogLine) => msg.startsWith('Telemetry')
  expect(bare.filter(telling).sort((a, b) => (a.thread < b.thread ? -1 : 1))).toMatchObject([
    { thread: 'consumer', level: 'warn', msg: expect.stringContaining('--import') },
    { thread: 'relay-0', level: 'warn', msg: expect.stringContaining('--import') },
  ])
  expect(off.filter(telling)).toEqual([])
})

test('a setting that cannot be used is ignored and told', () => {
  const config = readTelemetryConfig({
    OTEL_TRACES_SAMPLER: 'sometimes',
    OTEL_BSP_SCHEDULE_DELAY: 'soon',
    OUTBOX_TRACES_BATCH_RATIO: '2',
    OUTBOX_TRACES_WAIT: 'maybe',
    ROLES: 'consumer,relay',
  })

  expect(config).toMatchObject({
    mainServiceName: 'outbox-relay',
    sampler: { parentBased: true, ratio: 1 },
    batchRatio: 0.001,
    waitSpans: false,
    batch: { scheduledDelayMillis: 1_000, maxQueueSize: 65_536 },
  })
  expect(config.problems).toEqual([
    expect.stringContaining('OTEL_TRACES_SAMPLER'),
    expect.stringContaining('OUTBOX_TRACES_BATCH_RATIO'),
    expect.stringContaining('OUTBOX_TRACES_WAIT'),
    expect.stringContaining('OTEL_BSP_SCHEDULE_DELAY'),
  ])
})

/** The series of HTTP, GraphQL and the database; what describes the process comes by itself. */
function seriesOf(metrics: string): string[] {
  const lines = metrics.split('\n').filter((line) => /^(http|graphql|db_client_operation)_/.test(line))
  return lines.map((line) => line.slice(0, line.lastIndexOf(' '))).sort()
}

/** As a client that is bound to nothing: any method, host and path. */
async function askFor(
  url: string,
  { method, host, body }: { readonly method: string; readonly host?: string; readonly body?: string },
): Promise<void> {
  const headers = { 'content-type': 'application/json', ...(host === undefined ? {} : { host }) }
  const asked = request(url, { method, headers })
  asked.end(body)
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  await response.resume().toArray()
}

interface LogLine {
  readonly thread: string
  readonly msg: string
}

/** What the service's threads write until they are up, where they do not inherit the preload of their process. */
async function linesOfBareThreads(env: Readonly<Record<string, string>>): Promise<readonly LogLine[]> {
  // Nobody listens there: it comes up all the same, and waits.
  const nobody = { DATABASE_URL: 'postgres://user@127.0.0.1:1/orders', KAFKA_BROKERS: '127.0.0.1:1' }
  const child = spawn(process.execPath, ['--import', preload, bareThreads], {
    env: { PATH: process.env.PATH, ...nobody, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const text = (await Array.fromAsync(child.stdout as AsyncIterable<Buffer>)).join('')
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as LogLine]))
}

interface Answer {
  readonly extensions: { readonly outbox: { readonly traceId: string; readonly eventIds: readonly string[] } }
}

function hex(bytes: number): string {
  return randomBytes(bytes).toString('hex')
}

/** The names of `span` and of what is above it in `spans`, and at the end the id of what is above them all. */
function pathOf(span: ExportedSpan | undefined, spans: readonly ExportedSpan[]): readonly string[] {
  if (span === undefined) return []
  const parent = spans.find(({ spanId }) => spanId === span.parentSpanId)
  return [span.name, ...(parent === undefined ? [span.parentSpanId] : pathOf(parent, spans))]
}

/** The API in a process of its own. */
async function startApi(databaseUrl: string, env: Record<string, string>) {
  const child = spawn(process.execPath, ['--import', preload, script], {
    env: { PATH: process.env.PATH, TEST_DATABASE_URL: databaseUrl, ...env },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const { url } = await answer<{ url: string }>(child)
  /** Stops it; resolves to the ports that it has tried to connect to. */
  async function stop(): Promise<number[]> {
    child.send({ kind: 'stop' })
    const { triedPorts } = await answer<{ triedPorts: number[] }>(child)
    await once(child, 'exit')
    return triedPorts
  }
  return {
    url,
    /** What it would answer at `/metrics`. */
    async metrics() {
      child.send({ kind: 'metrics' })
      return (await answer<{ metrics: string }>(child)).metrics
    },
    async mutate(sku: string, headers: Readonly<Record<string, string>> = {}) {
      const query = 'mutation PlaceOrder($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id } } }'
      const input = { customerId: 'customer-1', items: [{ sku, quantity: 1, unitPriceCents: 100 }] }
      const response = await fetch(`${url}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ query, variables: { input } }),
      })
      return (await response.json()) as Answer
    },
    /** Resolves once there are `count` or more. */
    async problems(count: number) {
      child.send({ kind: 'problems', count })
      return (await answer<{ problems: string[] }>(child)).problems
    },
    stop,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null) await stop()
    },
  }
}

/** Its next message; rejects when it ends without. */
async function answer<T>(child: ChildProcess): Promise<T> {
  const over = new AbortController()
  const { signal } = over
  const ended = once(child, 'exit', { signal }).then(([code]) => {
    throw new Error(`The process ended with ${code} and without an answer`)
  })
  try {
    const [message] = await Promise.race([once(child, 'message', { signal }), ended])
    return message as T
  } finally {
    over.abort()
    ended.catch(() => {})
  }
}
