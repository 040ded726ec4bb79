/** The port for those who run the service: liveness, readiness, metrics. Not for the public. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Logger, type Running, run } from '../messaging/index.ts'
import { ROLES } from './config.ts'
import type { Health } from './health.ts'
import { PROMETHEUS_CONTENT_TYPE } from './telemetry-prometheus.ts'

export interface AdminOptions {
  readonly host: string
  /** 0 takes any free port. */
  readonly port: number
  readonly health: Health
  /** The metrics of all threads, as Prometheus text. */
  readonly metrics: () => Promise<string>
  readonly logger: Logger
}

export interface AdminServer extends Running {
  readonly url: string
}

interface Answer {
  readonly status: number
  readonly type: string
  readonly body: string
}

const GRACE_MS = 1_000

/** A comment in the format, so that a scraper takes it for what it is: nothing. */
const NO_METRICS =
  '# No metrics: this process was started without --import src/service/telemetry.ts, or with OTEL_SDK_DISABLED=true.\n'

/** Listens. Rejects with the system's own error (`EADDRINUSE`) when it cannot. */
export async function startAdminServer(options: AdminOptions): Promise<AdminServer> {
  const http = createServer({ requestTimeout: 10_000, headersTimeout: 5_000 }, (request, response) => {
    void respond(request, response, options)
  })
  http.listen(options.port, options.host)
  await once(http, 'listening')
  const { port } = http.address() as AddressInfo
  const host = options.host.includes(':') ? `[${options.host}]` : options.host
  const running = run(
    async ({ draining, cancelled }) => {
      if (!draining.aborted) await once(draining, 'abort')
      cancelled.addEventListener('abort', () => http.closeAllConnections())
      await close(http)
    },
    { graceMs: GRACE_MS },
  )
  return { ...running, url: `http://${host}:${port}` }
}

async function respond(request: IncomingMessage, response: ServerResponse, options: AdminOptions): Promise<void> {
  const { status, type, body } = await answerTo(request, options).catch((error: unknown): Answer => {
    options.logger.error({ error }, 'A request to the admin port failed')
    return json(500, { problem: 'Something went wrong; the log has more' })
  })
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' })
  response.end(request.method === 'HEAD' ? '' : body)
}

async function answerTo({ method, url = '/' }: IncomingMessage, { health, metrics }: AdminOptions): Promise<Answer> {
  if (method !== 'GET' && method !== 'HEAD') return json(405, { problem: 'Only GET is answered here' })
  const path = url.split('?', 1)[0] ?? '/'
  if (path === '/livez') return json(200, { live: true })
  if (path === '/metrics') return { status: 200, type: PROMETHEUS_CONTENT_TYPE, body: (await metrics()) || NO_METRICS }
  if (path === '/readyz') {
    const report = await health.report()
    return json(report.ready ? 200 : 503, report)
  }
  const role = ROLES.find((name) => path === `/readyz/${name}`)
  const status = role ? await health.ofRole(role) : null
  if (status) return json(status.ready ? 200 : 503, status)
  const problem = role
    ? `This process does not have the role ${role}`
    : 'There is nothing here; try /livez, /readyz, /readyz/api, /readyz/relay, /readyz/consumer or /metrics'
  return json(404, { problem })
}

function json(status: number, content: object): Answer {
  return { status, type: 'application/json; charset=utf-8', body: `${JSON.stringify(content, null, 2)}\n` }
}

async function close(http: Server): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    http.close((error) => (error ? reject(error) : resolve()))
  })
}
