/**
 * Everything that `npm start` runs: Postgres, Kafka, Jaeger and the service,
 * started in this order and stopped in the reverse of it. What the environment
 * names is used and not started.
 */

import { once } from 'node:events'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { SETTINGS } from '../service/config.ts'
import { inheritedEnv, type LocalConfig, ownsServers } from './config.ts'
import { claimDataDir, claimIfFree } from './data-dir.ts'
import { type Part, provideKafka, providePostgres } from './embedded.ts'
import { portIsFree } from './free-ports.ts'
import { kafkaProblems } from './kafka-jars.ts'
import { endLeftover } from './leftover.ts'
import { programProblem } from './on-path.ts'
import { postgresProblem } from './postgres-binaries.ts'
import { type ServiceProcess, startService } from './service-process.ts'
import { StackError } from './stack-error.ts'
import { summary } from './summary.ts'
import { beginTracing, type Tracing } from './tracing.ts'

export interface StackOptions {
  readonly config: LocalConfig
  /** The service's program and arguments; the last one tells its process from others. */
  readonly service: readonly [string, ...string[]]
  /** What it is called in messages: `The service`. */
  readonly serviceName: string
  /** Takes progress, a line or a few at a time. */
  readonly say: (text: string) => void
  /** Aborts: stop in order. */
  readonly stop: AbortSignal
  /** Aborts: end all at once. Nothing that was committed or acknowledged is lost by it. */
  readonly force: AbortSignal
}

/**
 * Runs the stack until `stop` aborts or the service has ended with exit code 0;
 * all of it has ended then. Throws {@link StackError} when a part cannot start
 * or ends otherwise, after the others were stopped.
 */
export async function runStack(options: StackOptions): Promise<void> {
  const { config, service, serviceName, say, stop, force } = options
  using claim = await claimFor(config)
  const pidFile = claim && join(config.dataDir, 'service.pid')
  // That of a start that was killed.
  if (claim) await rm(join(config.dataDir, 'env'), { force: true })
  if (pidFile)
    await endLeftover({ name: serviceName, pidFile, commandHolds: service.at(-1) ?? '', stopSignal: 'SIGTERM' })
  await requireAll(config, service[0])
  // Here and not only in the service's log: a slip in KAFKA_BROKERS starts a Kafka that nobody wants.
  for (const slip of config.slips) say(slip)

  await using parts = new AsyncDisposableStack()
  const stopped = stop.aborted ? Promise.resolve() : once(stop, 'abort')
  const tracing = parts.use(await beginTracing({ config, dir: claim && join(config.dataDir, 'jaeger'), say }))
  const starting = startServers(options, parts)
  starting.catch(() => {})
  const servers = await Promise.race([stopped.then(() => null), starting])
  if (servers === null) return
  const [postgres, kafka] = servers
  const env = { DATABASE_URL: postgres.address, KAFKA_BROKERS: kafka.address, ...variables(config, tracing) }
  if (claim) parts.use(await writeEnvFile(config.dataDir, env))
  if (stop.aborted) return

  const running = parts.use(
    await startService({
      name: serviceName,
      command: service,
      env: { ...compileCache(config.dataDir), ...env, LOG_FORMAT: config.logFormat },
      pidFile,
    }),
  )
  force.addEventListener('abort', () => killAll(running, [postgres, kafka]))
  const over = new AbortController()
  void announce(running, { config, tracing, say, over: AbortSignal.any([stop, over.signal]) })
  const finished = running.finished.then(() => {
    over.abort()
    if (!stop.aborted) say(`${serviceName} has ended. Stopping the rest.`)
  })
  await Promise.race([stopped, finished, postgres.failed, kafka.failed, running.failed]).catch((error: Error) => {
    over.abort()
    say(`${error.message.split(/\(|\.(?:\s|$)/, 1)[0]?.trim()}. Stopping the rest.`)
    throw error
  })
}

/** Milliseconds after which a service that is not ready is mentioned. */
const PATIENCE_MS = 30_000

interface Announcing {
  readonly config: LocalConfig
  readonly tracing: Tracing
  readonly say: (text: string) => void
  /** Aborts when the stack ends, however: nothing is announced any more. */
  readonly over: AbortSignal
}

/** Says where everything is once the service is ready, and after a while that it is not. */
async function announce(running: ServiceProcess, { config, tracing, say, over }: Announcing): Promise<void> {
  const readyUrl = `http://127.0.0.1:${config.adminPort}/readyz`
  const impatience = setTimeout(() => say(`The service is not ready yet; ${readyUrl} says why.`), PATIENCE_MS)
  over.addEventListener('abort', () => clearTimeout(impatience), { once: true })
  const ready = await running.untilReady(readyUrl)
  clearTimeout(impatience)
  if (ready && !over.aborted) say(summary(config, tracing))
}

/** Both at once. Each is in `parts` as soon as it is up, also when the other fails. */
async function startServers(options: StackOptions, parts: AsyncDisposableStack): Promise<[Part, Part]> {
  const keep = (part: Part) => {
    if (!parts.disposed) parts.use(part)
    return part
  }
  return await Promise.all([providePostgres(options).then(keep), provideKafka(options).then(keep)])
}

/**
 * Without servers of its own a start has nothing in the folder, and may stand
 * beside the one whose folder it is: `null` then. Throws {@link StackError}
 * when it cannot have the folder, with what else is wrong.
 */
async function claimFor(config: LocalConfig): Promise<Disposable | null> {
  if (!ownsServers(config)) return await claimIfFree(config.dataDir)
  try {
    return await claimDataDir(config.dataDir)
  } catch (error) {
    if (!(error instanceof StackError)) throw error
    throw new StackError([...config.problems, ...config.slips, error.message].join('\n'), { cause: error })
  }
}

/** Throws {@link StackError} with all that is in the way, before anything is started: settings, ports, programs. */
async function requireAll(config: LocalConfig, program: string): Promise<void> {
  const postgres = config.databaseUrl === null ? await postgresProblem() : null
  const kafka = config.kafkaBrokers === null ? await kafkaProblems() : []
  const unrunnable = programProblem(program)
  const problems = [
    ...config.problems,
    ...(await portProblems(config)),
    ...(postgres ? [postgres] : []),
    ...kafka,
    ...(unrunnable === null ? [] : [unrunnable]),
  ]
  if (problems.length > 0) throw new StackError([...problems, ...config.slips].join('\n'))
}

/** Of a port that is no port only that is said: whether the usual one would be free is of no interest. */
async function portProblems({ port, adminPort, roles, problems: told }: LocalConfig): Promise<readonly string[]> {
  const wanted = [...(roles.includes('api') ? [['PORT', port] as const] : []), ['ADMIN_PORT', adminPort] as const]
  const problems: string[] = []
  for (const [name, number] of wanted) {
    if (told.some((problem) => problem.startsWith(`${name} `)) || (await portIsFree(number))) continue
    const other = wanted.some(([, one]) => one === number + 100) ? number + 200 : number + 100
    problems.push(`Port ${number} is taken. Set ${name} to another: ${name}=${other} npm start`)
  }
  if (wanted.length > 1 && port === adminPort)
    problems.push(`PORT and ADMIN_PORT are both ${port}. Set one of them to another.`)
  return problems
}

/** Where Node keeps compiled modules: every start after the first has them in a third of the time. */
function compileCache(dataDir: string): Readonly<Record<string, string>> {
  return { NODE_COMPILE_CACHE: inheritedEnv().NODE_COMPILE_CACHE ?? join(dataDir, 'compile-cache') }
}

/** What goes over the environment that the service inherits: only what it leaves open, or says itself. */
function variables(
  { port, adminPort, tracesWait }: LocalConfig,
  { endpoint, queryUrl, spanMetrics }: Tracing,
): Record<string, string> {
  return {
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    ...(endpoint === null ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }),
    OUTBOX_TRACES_WAIT: tracesWait,
    ...(queryUrl === null ? {} : { JAEGER_URL: queryUrl }),
    ...(spanMetrics === null ? {} : { JAEGER_SPAN_METRICS: spanMetrics }),
  }
}

/**
 * For `node --env-file=.data/env`, for our scripts and for people: what the
 * service was told, password included, and where its traces are. Gone when the
 * servers are, so that nobody looks for them where they were.
 */
async function writeEnvFile(dataDir: string, env: Readonly<Record<string, string>>): Promise<AsyncDisposable> {
  const all = {
    // A relay that knew another prefix would publish to other topics.
    ...Object.fromEntries(
      Object.entries(inheritedEnv()).flatMap(([name, value]) => (isShared(name) && value ? [[name, value]] : [])),
    ),
    ...env,
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}=${quoted(value)}\n`)
  const file = join(dataDir, 'env')
  await writeFile(file, lines.join(''), { mode: 0o600 })
  return { [Symbol.asyncDispose]: () => rm(file, { force: true }) }
}

/** What all processes of a service have to know alike, and where its traces go: a trace is to be found in one place. */
const isShared = (name: string): boolean =>
  (/^(KAFKA|TOPIC|OUTBOX)_/.test(name) && SETTINGS.includes(name)) ||
  /^OTEL_EXPORTER_OTLP_(TRACES_)?ENDPOINT$/.test(name)

/** For a shell as for Node: an address may have `&` in it, a password `$`. Only with `'` besides does a shell take `$` for its own. */
function quoted(value: string): string {
  return value.includes("'") ? `"${value}"` : `'${value}'`
}

function killAll(service: ServiceProcess, parts: readonly Part[]): void {
  service.kill('SIGKILL')
  for (const part of parts) void part.kill()
}
