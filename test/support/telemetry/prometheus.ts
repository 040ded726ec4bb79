/** A Prometheus with our rules, scraping a service under test each second. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'
import { freePorts } from '../../../src/local/free-ports.ts'
import { startGuarded } from '../../../src/local/guarded-process.ts'
import { until } from './wait.ts'

const alertsFile = fileURLToPath(new URL('../../../observability/alerts.yaml', import.meta.url))

export interface PrometheusOptions {
  readonly binary: string
  /** Folder of its data and log. */
  readonly dir: string
  /** `host:port` whose `/metrics` is read. */
  readonly target: string
  /** By what the rules' ranges, offsets and `for` are divided; waiting thresholds in seconds by a third of it, as scrapes and beats are not. */
  readonly hurry: number
}

export interface Prometheus extends AsyncDisposable {
  /** The names of the alerts that fire now. */
  firing(): Promise<ReadonlySet<string>>
  /** The names of all alerts that have fired so far. */
  everFired(): Promise<ReadonlySet<string>>
}

/** Starts it; resolves once it has scraped the target. */
export async function startPrometheus({ binary, dir, target, hurry }: PrometheusOptions): Promise<Prometheus> {
  await mkdir(dir, { recursive: true })
  const [port = 0] = await freePorts(1)
  await writeFile(join(dir, 'rules.yaml'), JSON.stringify(hurried(parse(await readFile(alertsFile, 'utf8')), hurry)))
  await writeFile(
    join(dir, 'prometheus.yaml'),
    JSON.stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: ['rules.yaml'],
      scrape_configs: [{ job_name: 'orders', static_configs: [{ targets: [target] }] }],
    }),
  )
  const running = startGuarded({
    command: [
      binary,
      `--config.file=${join(dir, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${join(dir, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    logFile: join(dir, 'prometheus.log'),
    stopSignal: 'SIGTERM',
    orphanGraceSeconds: 2,
  })
  const url = `http://127.0.0.1:${port}/api/v1`

  async function query(expression: string): Promise<readonly { readonly metric: Record<string, string> }[]> {
    const response = await fetch(`${url}/query?${new URLSearchParams({ query: expression })}`)
    const { data } = (await response.json()) as { data: { result: { metric: Record<string, string> }[] } }
    return data.result
  }
  await using failed = new AsyncDisposableStack()
  failed.defer(stop)
  async function stop(): Promise<void> {
    running.kill('SIGTERM')
    await running.ended
  }
  await until('A scrape by Prometheus', async () => {
    const found = await query('up == 1').catch(() => [])
    return found.length > 0 ? true : null
  })
  failed.move()

  return {
    async firing() {
      const response = await fetch(`${url}/alerts`)
      const { data } = (await response.json()) as {
        data: { alerts: { state: string; labels: { alertname: string } }[] }
      }
      return new Set(data.alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels.alertname))
    },
    async everFired() {
      const found = await query('count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[2h]))')
      return new Set(found.map(({ metric }) => metric.alertname ?? ''))
    },
    [Symbol.asyncDispose]: stop,
  }
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[]
}

interface Rule {
  readonly expr: string
  readonly for?: string
}

const unitsInSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 }

/** The same rules, in a hurry. */
function hurried({ groups }: RuleFile, by: number): RuleFile {
  const shortened = (count: string, unit: string) =>
    `${Math.round((Number(count) * (unitsInSeconds[unit] ?? 1) * 1_000) / by)}ms`
  const threshold = Math.ceil((60 * 3) / Math.max(3, by))
  return {
    groups: groups.map((group) => ({
      ...group,
      rules: group.rules.map((rule) => ({
        ...rule,
        expr: rule.expr
          .replaceAll(/(\[|\boffset )(\d+)([smhd])\b/g, (_, before, count, unit) => before + shortened(count, unit))
          .replaceAll(/(_seconds\)?) > 60$/gm, `$1 > ${threshold}`),
        ...(rule.for === undefined
          ? {}
          : { for: rule.for.replace(/^(\d+)([smhd])$/, (_, count, unit) => shortened(count, unit)) }),
      })),
    })),
  }
}
