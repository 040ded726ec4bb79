/** A collector for tests: takes traces over OTLP/HTTP and shows them; can also fall silent, as one behind a dead path does. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'
import { decodeTraces, type ExportedSpan } from './decode-traces.ts'

/** A running sink. */
export interface OtlpSink extends AsyncDisposable {
  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  readonly endpoint: string
  readonly spans: readonly ExportedSpan[]
  /** The paths of all requests: `/v1/traces`. */
  readonly paths: readonly string[]
  /** All that was sent, as it was, and readable as far as it is text. */
  text(): string
  /** Takes requests and never answers, until `answer()`. */
  hang(): void
  answer(): void
  /** Requests that came while it hung. */
  readonly unansweredCount: number
  /** Resolves with the spans once `enough` holds; rejects after `timeoutMs`, a minute by itself, naming what has arrived. */
  until(enough: (spans: readonly ExportedSpan[]) => boolean, timeoutMs?: number): Promise<readonly ExportedSpan[]>
}

/** Starts a sink on a free port of the loopback. */
export async function startOtlpSink(): Promise<OtlpSink> {
  const spans: ExportedSpan[] = []
  const paths: string[] = []
  const bodies: Buffer[] = []
  const watchers = new Set<() => void>()
  let hanging = false
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
    if (request.url === '/v1/traces') spans.push(...decodeTraces(plain))
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    for (const watcher of [...watchers]) watcher()
  }
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo

  return {
    endpoint: `http://127.0.0.1:${port}`,
    spans,
    paths,
    text: () => Buffer.concat(bodies).toString('latin1'),
    hang() {
      hanging = true
    },
    answer() {
      hanging = false
      server.closeAllConnections()
    },
    get unansweredCount() {
      return unansweredCount
    },
    async until(enough, timeoutMs = 60_000) {
      const { promise, resolve, reject } = Promise.withResolvers<readonly ExportedSpan[]>()
      const look = () => {
        if (enough(spans)) resolve(spans)
      }
      const timer = setTimeout(() => {
        const seen = spans.map(({ service, name }) => `${service}: ${name}`).join(', ')
        reject(new Error(`The spans did not arrive. Arrived: ${seen || 'none'}`))
      }, timeoutMs)
      watchers.add(look)
      look()
      return await promise.finally(() => {
        clearTimeout(timer)
        watchers.delete(look)
      })
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
