/** The whole service as it is started in production, in a process of its own, with its own database. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))

/** A running service. */
export interface ServiceProcess extends AsyncDisposable {
  /** `http://127.0.0.1:port` of the API, and of the admin port. */
  readonly url: string
  readonly adminUrl: string
  readonly pid: number
  /** What it has logged, one object a line. */
  readonly log: readonly Record<string, unknown>[]
  mutate(query: string, variables: object): Promise<{ data: Record<string, unknown>; extensions: { outbox: Outbox } }>
  metrics(): Promise<string>
  /** Sends `signal` and resolves to the exit code. */
  end(signal?: NodeJS.Signals): Promise<number | null>
}

interface Outbox {
  readonly traceId: string
  readonly eventIds: readonly string[]
}

/** Starts it with `env` added; resolves once every role is ready. */
export async function startServiceProcess(env: Record<string, string>): Promise<ServiceProcess> {
  const child = spawn(
    process.execPath,
    ['--import', path('../../../src/service/telemetry.ts'), path('../../../src/service/main.ts')],
    { env: { PATH: process.env.PATH, PORT: '0', ADMIN_PORT: '0', ...env }, stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const log: Record<string, unknown>[] = []
  const { promise: started, resolve, reject } = Promise.withResolvers<{ url: string; admin: string }>()
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  void exited.then((code) => reject(new Error(`The service ended with ${code}: ${JSON.stringify(log.slice(-5))}`)))

  let url = ''
  createInterface({ input: child.stdout }).on('line', (line) => {
    const entry = JSON.parse(line) as Record<string, unknown>
    log.push(entry)
    if (typeof entry.url === 'string') url = entry.url
    if (entry.msg === 'Started') resolve({ url, admin: String(entry.admin) })
  })
  const where = await started
  await untilReady(where.admin)

  async function end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    child.kill(signal)
    return await exited
  }
  return {
    url: where.url,
    adminUrl: where.admin,
    pid: child.pid ?? 0,
    log,
    async mutate(query, variables) {
      const response = await fetch(`${where.url}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query, variables }),
      })
      return (await response.json()) as Awaited<ReturnType<ServiceProcess['mutate']>>
    },
    metrics: async () => await (await fetch(`${where.admin}/metrics`)).text(),
    end,
    [Symbol.asyncDispose]: async () => {
      await end()
    },
  }
}

/** Polls as a load balancer does; there is nothing to wait on instead. */
async function untilReady(adminUrl: string): Promise<void> {
  for (;;) {
    const { ok } = await fetch(`${adminUrl}/readyz`)
    if (ok) return
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

/** Places an order of one item. */
export function placeOrder(service: ServiceProcess, customerId = 'customer-1') {
  return service.mutate(
    'mutation PlaceOrder($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id } } }',
    { input: { customerId, items: [{ sku: 'sku-1', quantity: 1, unitPriceCents: 100 }] } },
  )
}
