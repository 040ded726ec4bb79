/**
 * `npm run observe`: Prometheus with our rules over the service that runs here,
 * and Grafana with our dashboards where it is installed, until Ctrl-C.
 *
 * Takes the programs of this machine (Debian's `prometheus`, a `grafana`);
 * where there is a container engine, observability/compose.yaml has both.
 */
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { parse } from 'yaml'
import { type GuardedProcess, startGuarded } from '../src/local/guarded-process.ts'
import { dataDir, lastStart } from './last-start.ts'

const observability = fileURLToPath(new URL('../observability/', import.meta.url))
const dir = join(dataDir, 'observe')
const last = lastStart()
/** Where Jaeger's span metrics are: the port of compose.yaml where no `npm start` has said another. */
const spanMetrics = last.JAEGER_SPAN_METRICS || '127.0.0.1:8889'
/** Milliseconds that a program has to answer. */
const START_MS = 30_000

const running: GuardedProcess[] = []
const stopped = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])

const { adminPort, prometheusPort, grafanaPort } = new Command('npm run observe --')
  .description('Prometheus with our rules over the service that runs here, and Grafana where it is installed.')
  .option('--admin-port <port>', 'the service to scrape', process.env.ADMIN_PORT || last.ADMIN_PORT || '4001')
  .option('--prometheus-port <port>', 'where Prometheus answers', process.env.PROMETHEUS_PORT || '9090')
  .option('--grafana-port <port>', 'where Grafana answers', process.env.GRAFANA_PORT || '3000')
  .parse()
  .opts<{ adminPort: string; prometheusPort: string; grafanaPort: string }>()

process.exitCode = await observe()

async function observe(): Promise<number> {
  const prometheus = onPath('prometheus')
  if (prometheus === null) {
    console.error('There is no prometheus here. Install it (Debian: apt-get install prometheus), or use containers:')
    console.error('  docker compose -f compose.yaml -f observability/compose.yaml up -d')
    return 1
  }
  await mkdir(dir, { recursive: true })
  try {
    await startPrometheus(prometheus)
    console.log(`Prometheus   http://127.0.0.1:${prometheusPort}/alerts, scraping port ${adminPort}`)
    await startGrafana()
    console.log('Ctrl-C ends it.')
    const ended = running.map(async ({ ended: how }) => `A program has ended by itself (${await how}); see ${dir}`)
    const why = await Promise.race([stopped.then(() => null), ...ended])
    if (why !== null) console.error(why)
    return why === null ? 0 : 1
  } catch (error) {
    console.error(error instanceof Error ? error.message : error)
    return 1
  } finally {
    for (const program of running) program.kill('SIGTERM')
    await Promise.all(running.map(({ ended }) => ended))
  }
}

async function startPrometheus(program: string): Promise<void> {
  const configFile = join(dir, 'prometheus.yaml')
  await writeFile(configFile, JSON.stringify(await configOf(await targets())))
  start('prometheus', [
    program,
    `--config.file=${configFile}`,
    `--storage.tsdb.path=${join(dir, 'prometheus')}`,
    `--web.listen-address=127.0.0.1:${prometheusPort}`,
    '--log.level=warn',
  ])
  await untilReady('Prometheus', `http://127.0.0.1:${prometheusPort}/-/ready`)
}

/** The targets by job. A Jaeger that is not there would be one that is always down. */
async function targets(): Promise<Readonly<Record<string, string>>> {
  const hasSpanMetrics = await fetch(`http://${spanMetrics}/metrics`).then(
    ({ ok }) => ok,
    () => false,
  )
  if (!hasSpanMetrics) console.log('Jaeger       is not there (yet): its span metrics are left out')
  return { orders: `127.0.0.1:${adminPort}`, ...(hasSpanMetrics && { jaeger: spanMetrics }) }
}

/** Our configuration, with these targets and no others. */
async function configOf(targetOf: Readonly<Record<string, string>>): Promise<object> {
  const config = parse(await readFile(join(observability, 'prometheus.yaml'), 'utf8')) as {
    readonly scrape_configs: readonly { readonly job_name: string }[]
  }
  return {
    ...config,
    rule_files: [join(observability, 'alerts.yaml')],
    scrape_configs: config.scrape_configs
      .filter(({ job_name }) => targetOf[job_name] !== undefined)
      .map((job) => ({ ...job, static_configs: [{ targets: [targetOf[job.job_name]] }] })),
  }
}

async function startGrafana(): Promise<void> {
  const program = onPath('grafana')
  if (program === null) {
    console.log('Grafana      is not installed; import observability/dashboards/*.json into one that is')
    return
  }
  const home = process.env.GRAFANA_HOME ?? '/usr/share/grafana'
  start('grafana', [program, 'server', `--homepath=${home}`], {
    GF_SERVER_HTTP_ADDR: '127.0.0.1',
    GF_SERVER_HTTP_PORT: grafanaPort,
    GF_PATHS_DATA: join(dir, 'grafana'),
    GF_PATHS_LOGS: join(dir, 'grafana'),
    GF_PATHS_PROVISIONING: join(observability, 'grafana'),
    GF_AUTH_ANONYMOUS_ENABLED: 'true',
    GF_AUTH_ANONYMOUS_ORG_ROLE: 'Viewer',
    PROMETHEUS_URL: `http://127.0.0.1:${prometheusPort}`,
    DASHBOARDS_DIR: join(observability, 'dashboards'),
  })
  await untilReady('Grafana', `http://127.0.0.1:${grafanaPort}/api/health`)
  console.log(`Grafana      http://127.0.0.1:${grafanaPort}/d/outbox-overview`)
}

function start(name: string, command: [string, ...string[]], env: Record<string, string> = {}): void {
  running.push(
    startGuarded({ command, logFile: join(dir, `${name}.log`), stopSignal: 'SIGTERM', orphanGraceSeconds: 5, env }),
  )
}

async function untilReady(name: string, url: string): Promise<void> {
  for (const deadline = performance.now() + START_MS; performance.now() < deadline; ) {
    const answer = await fetch(url).catch(() => null)
    if (answer?.ok) return
    await sleep(200)
  }
  throw new Error(`${name} did not come up within ${START_MS / 1_000} s; its log is in ${dir}`)
}

function onPath(program: string): string | null {
  const folders = (process.env.PATH ?? '').split(delimiter)
  return folders.map((folder) => join(folder, program)).find((file) => existsSync(file)) ?? null
}
