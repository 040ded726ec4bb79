/**
 * `npm run observe`: Jaeger, and Prometheus with our rules, over the service
 * that runs here, and Grafana with our dashboards where it can be had, until
 * Ctrl-C. Each is the program of this machine, else its image where a container
 * engine is; Jaeger may also be built. What runs already is shown, not doubled.
 */
import { once } from 'node:events'
import { join } from 'node:path'
import { Command } from 'commander'
import { usualPorts } from '../src/local/config.ts'
import { containerEngine, orContainers, provideImage } from '../src/local/container-engine.ts'
import { claimIfFree } from '../src/local/data-dir.ts'
import { startGrafana } from '../src/local/grafana.ts'
import { onPath } from '../src/local/on-path.ts'
import { startPrometheus } from '../src/local/prometheus.ts'
import { answersWell, type Runnable } from '../src/local/runnable.ts'
import { StackError } from '../src/local/stack-error.ts'
import { dataDir, lastStart } from './last-start.ts'
import { hasPages, type JaegerPlan, planJaeger, startOwnJaeger } from './observe-jaeger.ts'
import { portFor } from './observe-port.ts'

/** One of the three: where it is, or why it is not. */
interface View {
  readonly url: string | null
  /** What to open in a browser, where that is another address. */
  readonly page?: string
  /** What there is to know of it, or why it is not there: clauses. */
  readonly notes: readonly string[]
}

/** What was started here, to be ended. */
interface Started extends AsyncDisposable {
  readonly failed: Promise<never>
}

const dir = join(dataDir, 'observe')
const { adminPort, endpoint, ports, json } = readOptions()
const started: Started[] = []
const engine = containerEngine()
const stop = new AbortController()
let firstSignalAt: number | null = null
// With --json standard output is for the object alone.
const say = (line: string) => (json ? console.error(line) : console.log(line))

// Whoever reads only the first lines, as `head` does, closes the pipe, and looks on no longer.
process.stdout.on('error', () => stop.abort())
process.stderr.on('error', () => {})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal)

/** One Ctrl-C may arrive twice, from the terminal and from npm: only one a while later is a second one. */
function onSignal(): void {
  firstSignalAt ??= performance.now()
  stop.abort()
  // What does not end by itself now is ended by its guard.
  if (performance.now() - firstSignalAt > 500) process.exit(130)
}

async function main(): Promise<number> {
  try {
    using claim = await claimIfFree(dir)
    if (claim === null) throw new StackError(`Another npm run observe uses ${dir}. End that one, or set DATA_DIR.`)
    await using _started = { [Symbol.asyncDispose]: endAll }
    return await observe()
  } catch (error) {
    console.error(error instanceof StackError ? error.message : error)
    return 1
  }
}

async function endAll(): Promise<void> {
  await Promise.all(started.map((each) => each[Symbol.asyncDispose]()))
}

async function observe(): Promise<number> {
  const { prometheus: prometheusGiven, grafana: grafanaGiven } = ports
  const [prometheusPort, grafanaPort] = await Promise.all([
    portFor({ option: '--prometheus-port', given: prometheusGiven, usual: usualPorts.prometheus }),
    portFor({ option: '--grafana-port', given: grafanaGiven, usual: usualPorts.grafana }),
  ])
  const prometheusUrl = `http://127.0.0.1:${prometheusPort}`
  const plan = await planJaeger({ endpoint, port: ports.jaeger, engine: await engine })
  const [jaeger, [prometheus, grafana]] = await Promise.all([
    show('Jaeger', () => provideJaeger(plan, prometheusUrl)),
    show('Prometheus', () => providePrometheus(prometheusPort, plan)).then(
      async (shown) => [shown, await show('Grafana', () => provideGrafana(grafanaPort, shown))] as const,
    ),
  ])
  if (stop.signal.aborted) return 0
  if (json) console.log(JSON.stringify({ jaeger, prometheus, grafana }, null, 2))
  if (started.length === 0) return 1
  say('Ctrl-C ends what was started here.')
  if (!stop.signal.aborted) await Promise.race([once(stop.signal, 'abort'), ...started.map(({ failed }) => failed)])
  return 0
}

/** Says what came of it, as soon as that is known. One that cannot start does not keep the others from being looked at. */
async function show(name: string, provide: () => Promise<View>): Promise<View> {
  const view = await provide().catch((error: unknown): View => {
    if (error instanceof StackError) return { url: null, notes: [error.message] }
    throw error
  })
  const { url, page = url, notes } = view
  const lines = page === null ? notes : [page, ...notes]
  if (!stop.signal.aborted) say(lines.map((line, at) => `${(at === 0 ? name : '').padEnd(12)} ${line}`).join('\n'))
  return view
}

async function provideJaeger(plan: JaegerPlan, prometheusUrl: string): Promise<View> {
  switch (plan.kind) {
    case 'none':
      return { url: null, notes: [plan.note] }
    case 'there':
      return await viewOfJaeger(plan.url, plan.note)
    case 'start': {
      const jaeger = await startOwnJaeger({
        engine: await engine,
        ports: plan.ports,
        prometheusUrl,
        dir,
        signal: stop.signal,
        say: progressOf('Jaeger'),
      })
      started.push(jaeger)
      return await viewOfJaeger(jaeger.url, plan.note)
    }
  }
}

async function viewOfJaeger(url: string, note: string): Promise<View> {
  if (await hasPages(url)) return { url, notes: [note] }
  const draws = `all of the API and no pages: npm run demo -- --jaeger ${url} --trace ID draws a trace`
  return { url, page: `${url}/api/v3`, notes: [note, draws] }
}

async function providePrometheus(port: number, plan: JaegerPlan): Promise<View> {
  const runnable = await provideProgram('Prometheus', 'prometheus')
  if (runnable === null) {
    const ways = 'install it (Debian: apt-get install prometheus; macOS: brew install prometheus)'
    return { url: null, notes: [`is not here: ${ways}${orContainers(await engine)}`] }
  }
  const jaeger = plan.kind === 'none' ? null : plan.spanMetrics
  const targets = { orders: `127.0.0.1:${adminPort}`, ...(jaeger !== null && { jaeger }) }
  started.push(await startPrometheus({ runnable, dir, port, targets }))
  const url = `http://127.0.0.1:${port}`
  const metrics = `http://127.0.0.1:${adminPort}/metrics`
  const note = (await answersWell(metrics))
    ? `scrapes ${metrics}`
    : `no service answers at ${metrics} yet: npm start brings one, --admin-port names another`
  return { url, page: `${url}/alerts`, notes: [note] }
}

async function provideGrafana(port: number, prometheus: View): Promise<View> {
  if (prometheus.url === null) return { url: null, notes: ['shows what Prometheus has, and is not started without'] }
  const runnable = await provideProgram('Grafana', 'grafana')
  if (runnable === null)
    return { url: null, notes: ['is not here: observability/dashboards/*.json can be imported into one that is'] }
  const home = process.env.GRAFANA_HOME ?? '/usr/share/grafana'
  started.push(await startGrafana({ runnable, home, dir, port, prometheusUrl: prometheus.url }))
  const url = `http://127.0.0.1:${port}`
  return { url, page: `${url}/d/outbox-overview`, notes: [] }
}

/** The program of this machine, else its image; `null` where there is neither. */
async function provideProgram(name: string, program: string): Promise<Runnable | null> {
  const installed = onPath(program)
  if (installed !== null) return installed
  const found = await engine
  if (!found?.answers) return null
  return await provideImage({ engine: found.program, service: program, signal: stop.signal, say: progressOf(name) })
}

function progressOf(name: string): (line: string) => void {
  return (line) => say(`${name.padEnd(12)} ${line}`)
}

function readOptions() {
  const last = lastStart()
  const { env } = process
  const command = new Command('npm run observe --')
    .description(
      'Jaeger and Prometheus, with our rules, over the service that runs here, and Grafana where it can be had, until Ctrl-C.',
    )
    .option('--admin-port <port>', 'the service to scrape', env.ADMIN_PORT || last.ADMIN_PORT || `${usualPorts.admin}`)
    .option(
      '--otlp-endpoint <url>',
      'where the service sends its spans; default what npm start or OTEL_EXPORTER_OTLP_ENDPOINT says, else http://127.0.0.1:4318',
      env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ||
        env.OTEL_EXPORTER_OTLP_ENDPOINT ||
        last.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ||
        last.OTEL_EXPORTER_OTLP_ENDPOINT,
    )
    .option('--jaeger-port <port>', `Jaeger's API and pages; default ${usualPorts.jaeger}, or a free one`)
    .option('--prometheus-port <port>', `default ${usualPorts.prometheus}, or a free one`, env.PROMETHEUS_PORT)
    .option('--grafana-port <port>', `default ${usualPorts.grafana}, or a free one`, env.GRAFANA_PORT)
    .option('--json', 'one JSON object, once all is there, in place of text', false)
    .parse()
  const given = command.opts<Readonly<Record<string, string | undefined>> & { readonly json: boolean }>()
  const port = (option: string, text: string | undefined) => {
    if (!text) return null
    const number = Number(text)
    if (Number.isInteger(number) && number > 0 && number < 65_536) return number
    return command.error(`${option} must be a port, 1 to 65535, and is '${text}'.`)
  }
  return {
    adminPort: port('--admin-port', given.adminPort) ?? usualPorts.admin,
    endpoint: given.otlpEndpoint,
    ports: {
      jaeger: port('--jaeger-port', given.jaegerPort),
      prometheus: port('--prometheus-port', given.prometheusPort),
      grafana: port('--grafana-port', given.grafanaPort),
    },
    json: given.json,
  }
}

// What still starts must not keep the process; its guard ends it.
process.exit(await main())
