/** A local Grafana with our dashboards over a Prometheus, for whoever opens it. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { OwnedServer } from './owned-server.ts'
import { type Runnable, startRunnable } from './runnable.ts'

const provisioning = fileURLToPath(new URL('../../observability/grafana', import.meta.url))
const dashboards = fileURLToPath(new URL('../../observability/dashboards', import.meta.url))

export interface GrafanaOptions {
  readonly runnable: Runnable
  /** Where an installed one has its pages. */
  readonly home: string
  /** Folder of its data and log. */
  readonly dir: string
  readonly port: number
  readonly prometheusUrl: string
}

/** Starts it; resolves once it answers. Throws {@link StackError} with the end of its log. */
export async function startGrafana({ runnable, home, dir, port, prometheusUrl }: GrafanaOptions): Promise<OwnedServer> {
  const installed = typeof runnable === 'string'
  const data = join(dir, 'grafana')
  return await startRunnable({
    name: 'Grafana',
    runnable,
    args: installed ? ['server', `--homepath=${home}`] : [],
    env: {
      GF_SERVER_HTTP_ADDR: '127.0.0.1',
      GF_SERVER_HTTP_PORT: String(port),
      GF_PATHS_PROVISIONING: provisioning,
      GF_AUTH_ANONYMOUS_ENABLED: 'true',
      GF_AUTH_ANONYMOUS_ORG_ROLE: 'Viewer',
      PROMETHEUS_URL: prometheusUrl,
      DASHBOARDS_DIR: dashboards,
      ...(installed && { GF_PATHS_DATA: data, GF_PATHS_LOGS: data }),
    },
    reads: [provisioning, dashboards],
    dir,
    healthUrl: `http://127.0.0.1:${port}/api/health`,
  })
}
