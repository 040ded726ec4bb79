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
import { delimiter, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type GuardedProcess, startGuarded } from '../src/local/guarded-process.ts'

const observability = fileURLToPath(new URL('../observability/', import.meta.url))
const dir = resolve(process.env.DATA_DIR ?? '.data', 'observe')
const adminPort = process.env.ADMIN_PORT ?? '4001'
const prometheusPort = process.env.PROMETHEUS_PORT ?? '9090'
const grafanaPort = process.env.GRAFANA_PORT ?? '3000'
/** Milliseconds that a program has to answer. */
const START_MS = 30_000

const running: GuardedProcess[] = []
const stopped = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])

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
  const config = await readFile(join(observability, 'prometheus.yaml'), 'utf8')
  const configFile = join(dir, 'prometheus.yaml')
  await writeFile(
    configFile,
    config
      .replace('127.0.0.1:4001', `127.0.0.1:${adminPort}`)
      .replace('[alerts.yaml]', `[${JSON.stringify(join(observability, 'alerts.yaml'))}]`),
  )
  start('prometheus', [
    program,
    `--config.file=${configFile}`,
    `--storage.tsdb.path=${join(dir, 'prometheus')}`,
    `--web.listen-address=127.0.0.1:${prometheusPort}`,
    '--log.level=warn',
  ])
  await untilReady('Prometheus', `http://127.0.0.1:${prometheusPort}/-/ready`)
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
