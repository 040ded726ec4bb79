/** A collector for tests: takes traces and metrics over OTLP/HTTP and shows them; can also be silent, slow or away. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { gunzipSync } from 'node:zlib'
import { decodeMetrics, type ExportedMetric } from './decode-metrics.ts'
import { decodeTraces, type ExportedSpan } from './decode-traces.ts'

/** A running sink. */
export interface OtlpSink extends AsyncDisposable {
  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  readonly endpoint: string
  readonly spans: readonly ExportedSpan[]
  /** Each metric of each request. */
  readonly metrics: readonly ExportedMetric[]
  /** The paths of all requests: `/v1/traces`. */
  readonly paths: readonly string[]
  /** All that was sent, as it was, and readable as far as it is text. */
  text(): string
  /** Takes requests and never answers, as behind a dead path. */
  hang(): void
  /** Takes what is sent, and answers only after so many milliseconds. */
  delay(ms: number): void
  /** Refuses connections, as one that does not run. */
  refuse(): Promise<void>
  /** Takes everything and answers at once, as at the start; what hung is cut off. */
  answer(): Promise<void>
  /** Lets go of all that has come so far. */
  forget(): void
  /** Requests that came while it hung. */
  readonly unansweredCount: number
  /** Resolves with the spans once `enough` holds; rejects after `timeoutMs`, a minute by itself, naming what has arrived. */
  until(enough: (spans: readonly ExportedSpan[]) => boolean, timeoutMs?: number): Promise<readonly ExportedSpan[]>
}

/** Starts a sink on a free port of the loopback. */
export async function startOtlpSink(): Promise<OtlpSink> {
  const decoded: ExportedSpan[] = []
  const undecoded: Buffer[] = []
  const metrics: ExportedMetric[] = []
  const paths: string[] = []
  const bodies: Buffer[] = []
  const watchers = new Set<() => void>()
  let hanging = false
  let delayMs = 0
  let unansweredCount = 0

  const server = createServer((request, response) => {
    void receive(request, response)
  })
  async function receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    paths.push(request.url ?? '')
    if (hanging) {
      unansweredCount++
      request.resume()
      return
    }
    const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>))
    const plain = request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body
    bodies.push(plain)
    if (request.url === '/v1/traces') undecoded.push(plain)
    if (request.url === '/v1/metrics') metrics.push(...decodeMetrics(plain))
    if (delayMs > 0) await sleep(delayMs, undefined, { ref: false })
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    for (const watcher of [...watchers]) watcher()
  }
  /** Read when they are asked for: a collector that reads first is slower than those that send. */
  function spans(): readonly ExportedSpan[] {
    for (const body of undecoded.splice(0)) for (const span of decodeTraces(body)) decoded.push(span)
    return decoded
  }
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  const close = async () => {
    if (!server.listening) return
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
  }
  await listen(0)
  const { port } = server.address() as AddressInfo

  return {
    endpoint: `http://127.0.0.1:${port}`,
    get spans() {
      return spans()
    },
    metrics,
    paths,
    text: () => Buffer.concat(bodies).toString('latin1'),
    hang() {
      hanging = true
    },
    delay(ms) {
      delayMs = ms
    },
    refuse: close,
    async answer() {
      hanging = false
      delayMs = 0
      server.closeAllConnections()
      if (!server.listening) await listen(port)
    },
    forget() {
      for (const kept of [decoded, undecoded, metrics, bodies]) kept.length = 0
    },
    get unansweredCount() {
      return unansweredCount
    },
    async until(enough, timeoutMs = 60_000) {
      const { promise, resolve, reject } = Promise.withResolvers<readonly ExportedSpan[]>()
      const look = () => {
        if (enough(spans())) resolve(decoded)
      }
      const timer = setTimeout(() => {
        const counts = Map.groupBy(spans(), ({ service, name }) => `${service}: ${name}`)
        const seen = [...counts].map(([name, { length }]) => `${length} ${name}`).join(', ')
        reject(new Error(`The spans did not arrive. Arrived: ${seen || 'none'}`))
      }, timeoutMs)
      watchers.add(look)
      look()
      return await promise.finally(() => {
        clearTimeout(timer)
        watchers.delete(look)
      })
    },
    [Symbol.asyncDispose]: close,
  }
}
