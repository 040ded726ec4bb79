/** What tests of telemetry ask of a running service. */
import { randomUUID } from 'node:crypto'
import { type Service, type ServiceOptions, startService } from '../system/service.ts'
import { until } from './wait.ts'

/** What a mutation answers beside its data. */
export interface OutboxExtension {
  readonly traceId: string
  readonly eventIds: readonly string[]
}

/** Starts a service, by default with all roles; resolves once each is ready. */
export async function startReadyService(
  dir: string,
  env: Readonly<Record<string, string>>,
  roles: ServiceOptions['roles'] = ['api', 'relay', 'consumer'],
): Promise<Service> {
  await using failed = new AsyncDisposableStack()
  const service = failed.use(await startService({ name: `service-${randomUUID().slice(0, 8)}`, roles, env, dir }))
  await service.until(true)
  failed.move()
  return service
}

/** Places an order of one item; again if a busy machine made the service refuse. */
export async function placeOrder(service: Pick<Service, 'url'>): Promise<OutboxExtension> {
  const query = 'mutation PlaceOrder($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id } } }'
  const input = { customerId: 'customer-1', items: [{ sku: 'sku-1', quantity: 1, unitPriceCents: 100 }] }
  return await until('An order', async () => {
    const response = await fetch(`${service.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query, variables: { input } }),
    })
    const { data, extensions } = (await response.json()) as {
      data?: { placeOrder: unknown }
      extensions: { outbox: OutboxExtension }
    }
    return data?.placeOrder ? extensions.outbox : null
  })
}

/** The whole of `/metrics`. */
export async function readMetrics({ adminUrl }: Service): Promise<string> {
  // A connection of its own: one that is kept may be closed by the other side just as it is used again.
  return await (await fetch(`${adminUrl}/metrics`, { headers: { connection: 'close' } })).text()
}
