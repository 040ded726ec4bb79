/** A local Jaeger: OTLP in, traces in memory, query API out, all on 127.0.0.1. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePorts } from './free-ports.ts'
import { endLeftover } from './leftover.ts'
import { OwnedServer } from './owned-server.ts'
import { commandOf, type Runnable } from './runnable.ts'

const config = fileURLToPath(new URL('../../observability/jaeger.yaml', import.meta.url))

export interface JaegerPorts {
  readonly otlpHttp: number
  readonly otlpGrpc: number
  /** The query API and the pages. */
  readonly query: number
  readonly queryGrpc: number
  readonly health: number
  readonly spanMetrics: number
}

export interface JaegerOptions {
  /** From `jaegerBinary()` or `buildJaeger()`, or its image. */
  readonly binary: Runnable
  /** Folder of its log and pid file. */
  readonly dir: string
  /** @defaultValue free ones */
  readonly ports?: JaegerPorts
  /** The Prometheus that its Monitor page asks. @defaultValue the port that people know */
  readonly prometheusUrl?: string
}

export interface Jaeger extends AsyncDisposable {
  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`, protocol http/protobuf. */
  readonly otlpEndpoint: string
  /** `http://host:port` of the query API and the pages. */
  readonly url: string
  readonly pid: number | null
  readonly logFile: string
  /** Rejects when it ends and nobody asked it to; never resolves. */
  readonly failed: Promise<never>
  kill(signal: NodeJS.Signals): Promise<void>
  stop(): Promise<void>
}

/** Ports for a Jaeger that starts later. */
export async function jaegerPorts(): Promise<JaegerPorts> {
  const [otlpHttp = 0, otlpGrpc = 0, query = 0, queryGrpc = 0, health = 0, spanMetrics = 0] = await freePorts(6)
  return { otlpHttp, otlpGrpc, query, queryGrpc, health, spanMetrics }
}

/** Starts it; resolves once it takes and answers. Throws {@link StackError} with the end of its log. */
export async function startJaeger({ binary, dir, ports: given, prometheusUrl }: JaegerOptions): Promise<Jaeger> {
  const ports = given ?? (await jaegerPorts())
  await mkdir(dir, { recursive: true })
  const pidFile = join(dir, 'jaeger.pid')
  const logFile = join(dir, 'jaeger.log')
  await endLeftover({ name: 'Jaeger', pidFile, commandHolds: `jaeger --config ${config}`, stopSignal: 'SIGTERM' })
  const env = {
    JAEGER_OTLP_HTTP_PORT: String(ports.otlpHttp),
    JAEGER_OTLP_GRPC_PORT: String(ports.otlpGrpc),
    JAEGER_QUERY_PORT: String(ports.query),
    JAEGER_QUERY_GRPC_PORT: String(ports.queryGrpc),
    JAEGER_HEALTH_PORT: String(ports.health),
    JAEGER_SPAN_METRICS_PORT: String(ports.spanMetrics),
    ...(prometheusUrl !== undefined && { JAEGER_PROMETHEUS_URL: prometheusUrl }),
  }
  const server = new OwnedServer({
    name: 'Jaeger',
    command: commandOf(binary, { args: ['--config', config], env, reads: [config] }),
    env,
    logFile,
    pidFile,
    stopSignal: 'SIGTERM',
    graceSeconds: 5,
    answers: () => isHealthy(ports.health),
    startTimeoutMs: 30_000,
  })
  await server.start()
  return {
    otlpEndpoint: `http://127.0.0.1:${ports.otlpHttp}`,
    url: `http://127.0.0.1:${ports.query}`,
    get pid() {
      return server.pid
    },
    logFile,
    failed: server.failed,
    kill: (signal) => server.kill(signal),
    stop: () => server.stop(),
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

async function isHealthy(port: number): Promise<boolean> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/status`, { signal: AbortSignal.timeout(2_000) })
    return response.ok && ((await response.json()) as { healthy?: boolean }).healthy === true
  } catch {
    return false
  }
}
