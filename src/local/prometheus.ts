/** A local Prometheus: our scrape configuration and our rules over the service that runs here. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'
import type { OwnedServer } from './owned-server.ts'
import { type Runnable, startRunnable } from './runnable.ts'

const config = fileURLToPath(new URL('../../observability/prometheus.yaml', import.meta.url))
const rules = fileURLToPath(new URL('../../observability/alerts.yaml', import.meta.url))

export interface PrometheusOptions {
  readonly runnable: Runnable
  /** Folder of its data, configuration and log. */
  readonly dir: string
  readonly port: number
  /** `host:port` by job of observability/prometheus.yaml. A job without one is left out: its target would always be down. */
  readonly targets: Readonly<Record<string, string>>
}

/** Starts it; resolves once it answers. Throws {@link StackError} with the end of its log. */
export async function startPrometheus({ runnable, dir, port, targets }: PrometheusOptions): Promise<OwnedServer> {
  await mkdir(dir, { recursive: true })
  const file = join(dir, 'prometheus.yaml')
  await writeFile(file, JSON.stringify(await configFor(targets)))
  return await startRunnable({
    name: 'Prometheus',
    runnable,
    args: [
      `--config.file=${file}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
      // In a container the folder that it runs in is its own, and goes with it.
      ...(typeof runnable === 'string' ? [`--storage.tsdb.path=${join(dir, 'prometheus')}`] : []),
    ],
    env: {},
    reads: [file, rules],
    dir,
    healthUrl: `http://127.0.0.1:${port}/-/ready`,
  })
}

/** Our configuration with these targets and no others, in a hurry: somebody looks on. */
async function configFor(targets: Readonly<Record<string, string>>): Promise<object> {
  const given = parse(await readFile(config, 'utf8')) as {
    readonly scrape_configs: readonly { readonly job_name: string }[]
  }
  return {
    ...given,
    global: { scrape_interval: '5s', evaluation_interval: '5s' },
    rule_files: [rules],
    scrape_configs: given.scrape_configs
      .filter(({ job_name }) => targets[job_name] !== undefined)
      .map((job) => ({ ...job, static_configs: [{ targets: [targets[job.job_name]] }] })),
  }
}
