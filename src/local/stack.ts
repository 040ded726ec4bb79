/**
 * Everything that `npm start` runs: Postgres, Kafka, Jaeger and the service,
 * started in this order and stopped in the reverse of it.
 */
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { LocalConfig } from './config.ts'
import { claimDataDir } from './data-dir.ts'
import { type Part, provideKafka, providePostgres } from './embedded.ts'
import { portIsFree } from './free-ports.ts'
import { endLeftover } from './leftover.ts'
import { type ServiceProcess, startService } from './service-process.ts'
import { StackError } from './stack-error.ts'
import { beginTracing, type Tracing } from './tracing.ts'

export interface StackOptions {
  readonly config: LocalConfig
  /** The service's program and arguments; the last one tells its process from others. */
  readonly service: readonly [string, ...string[]]
  /** Takes progress, a line or a few at a time. */
  readonly say: (text: string) => void
  /** Aborts: stop in order. */
  readonly stop: AbortSignal
  /** Aborts: end all at once. Nothing that was committed or acknowledged is lost by it. */
  readonly force: AbortSignal
}

/**
 * Runs the stack until `stop` aborts; all of it has ended then. Throws
 * {@link StackError} when a part cannot start or ends by itself, after the
 * others were stopped.
 */
export async function runStack(options: StackOptions): Promise<void> {
  const { config, service, say, stop, force } = options
  using _claim = await claimDataDir(config.dataDir)
  const pidFile = join(config.dataDir, 'service.pid')
  await endLeftover({ name: 'The service', pidFile, commandHolds: service.at(-1) ?? '', stopSignal: 'SIGTERM' })
  await requirePorts(config)

  await using parts = new AsyncDisposableStack()
  const stopped = stop.aborted ? Promise.resolve() : once(stop, 'abort')
  const tracing = parts.use(await beginTracing({ config, dir: join(config.dataDir, 'jaeger'), say }))
  const starting = startServers(options, parts)
  starting.catch(() => {})
  const servers = await Promise.race([stopped.then(() => null), starting])
  if (servers === null) return
  const [postgres, kafka] = servers
  const env = { DATABASE_URL: postgres.address, KAFKA_BROKERS: kafka.address, ...variables(config, tracing) }
  await writeEnvFile(config.dataDir, env)
  if (stop.aborted) return

  const running = parts.use(await startService({ command: service, env, pidFile }))
  force.addEventListener('abort', () => killAll(running, [postgres, kafka]))
  const ready = running.untilReady(`http://127.0.0.1:${config.adminPort}/readyz`)
  void ready.then(() => {
    if (!stop.aborted) say(summary(config, tracing))
  })
  const impatience = parts.adopt(
    setTimeout(() => say(notReady(config)), PATIENCE_MS),
    clearTimeout,
  )
  void ready.then(() => clearTimeout(impatience))
  await Promise.race([stopped, postgres.failed, kafka.failed, running.failed]).catch((error: Error) => {
    say(`${error.message.split(/[.(]/, 1)[0]?.trim()}. Stopping the rest.`)
    throw error
  })
}

/** Milliseconds after which a service that is not ready is mentioned. */
const PATIENCE_MS = 30_000

function notReady({ adminPort }: LocalConfig): string {
  return `The service is not ready yet; http://127.0.0.1:${adminPort}/readyz says why.`
}

/** Both at once. Each is in `parts` as soon as it is up, also when the other fails. */
async function startServers(options: StackOptions, parts: AsyncDisposableStack): Promise<[Part, Part]> {
  const keep = (part: Part) => {
    if (!parts.disposed) parts.use(part)
    return part
  }
  return await Promise.all([providePostgres(options).then(keep), provideKafka(options).then(keep)])
}

async function requirePorts({ port, adminPort }: LocalConfig): Promise<void> {
  for (const [name, wanted] of [
    ['PORT', port],
    ['ADMIN_PORT', adminPort],
  ] as const) {
    if (await portIsFree(wanted)) continue
    throw new StackError(`Port ${wanted} is taken. Set ${name} to another: ${name}=${wanted + 100} npm start`)
  }
  if (port === adminPort) throw new StackError(`PORT and ADMIN_PORT are both ${port}. Set one of them to another.`)
}

function variables({ port, adminPort }: LocalConfig, { endpoint }: Tracing): Record<string, string> {
  return {
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    ...(endpoint === null ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }),
    // Whoever looks for the first time is to see where the time goes.
    OUTBOX_TRACES_WAIT: 'true',
  }
}

/** For `node --env-file=.data/env` and for people: what the service was told, password included. */
async function writeEnvFile(dataDir: string, env: Readonly<Record<string, string>>): Promise<void> {
  const lines = Object.entries(env).map(([name, value]) => `${name}=${value}\n`)
  await writeFile(join(dataDir, 'env'), lines.join(''), { mode: 0o600 })
}

function killAll(service: ServiceProcess, parts: readonly Part[]): void {
  service.kill('SIGKILL')
  for (const part of parts) void part.kill()
}

function summary({ port, adminPort, dataDir }: LocalConfig, tracing: Tracing): string {
  return `
  GraphQL   http://127.0.0.1:${port}/graphql
  Admin     http://127.0.0.1:${adminPort}/readyz and /metrics
  Jaeger    ${tracing.state()}
  Data      ${dataDir}, kept between starts; how to connect stands in ${join(dataDir, 'env')}

  Try it: npm run demo. Ctrl-C stops everything.
`
}
