/**
 * `npm run demo`: what the service does, to look at. Against a running service
 * it places orders, ships and cancels some, follows one through Kafka to its
 * effect, and prints the trace of that way.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { lastStart } from './last-start.ts'
import { type Found, findTrace, showTrace } from './show-trace.ts'

const HELP = `npm run demo -- [options]

Against a running service (npm start): places orders for three customers, ships
and cancels some, follows the last one to its effect, and prints its trace.

  --url URL      the service           (default: that of the last npm start here)
  --jaeger URL   where its traces are  (default: that of the last npm start here)
  --trace ID     only draw the trace that an answer's extensions.outbox names;
                 traces are kept while npm start runs
  --json         one JSON object in place of text
  --help         this
`

/** Milliseconds to wait for an event's effect. */
const EFFECT_MS = 30_000

/** Something that the reader can do something about. */
class DemoError extends Error {}

interface Answer {
  readonly data?: Record<
    string,
    { readonly order: { readonly id: string; readonly totalCents: number; readonly phase: string } } | null
  > | null
  readonly errors?: readonly { readonly message: string }[]
  readonly extensions?: { readonly outbox: { readonly eventIds: readonly string[]; readonly traceId: string | null } }
}

interface Done {
  readonly what: string
  readonly orderId: string
  readonly customerId: string
  readonly phase: string
  readonly totalCents: number
  readonly eventId: string
  readonly traceId: string | null
}

interface Outcome extends Found {
  readonly mutations: readonly Done[]
  /** The last order placed, and what became of its event. */
  readonly followed: { readonly eventId: string; readonly traceId: string | null; readonly effectAfterMs: number }
  readonly summary: Record<string, unknown>
}

async function demo(url: string, jaeger: string, tell: (line: string) => void): Promise<Outcome> {
  const send = (query: string, variables: object) => request(url, query, variables)
  const mutations: Done[] = []
  const note = (done: Done) => {
    mutations.push(done)
    tell(row(done.what, short(done.orderId), done.customerId, money(done.totalCents), short(done.eventId)))
    return done
  }
  // Before anything is told of what a service would do that is not there.
  await send('{ __typename }', {})
  tell(row('mutation', 'order', 'customer', 'total', 'event'))
  // Customers of their own, so that a second run counts from nothing again.
  const run = Date.now().toString(36)
  const customers = ['ada', 'grace', 'edsger'].map((name) => `${name}-${run}`)
  const place = async (customerId: string, quantity: number) =>
    note(
      await mutate(send, 'placeOrder', customerId, {
        input: { customerId, items: [{ sku: 'coffee', quantity, unitPriceCents: 1250 }] },
      }),
    )

  for (const [index, customerId] of customers.entries()) {
    const first = await place(customerId, index + 1)
    const second = await place(customerId, 2)
    note(await mutate(send, 'shipOrder', customerId, { id: first.orderId }))
    if (index === 1)
      note(await mutate(send, 'cancelOrder', customerId, { id: second.orderId, reason: 'changed my mind' }))
  }

  const [customerId = ''] = customers
  const last = await place(customerId, 4)
  const from = performance.now()
  tell(`\nFollowing event ${last.eventId} through outbox, relay, Kafka and consumer`)
  await untilSummary(send, customerId, { placedCount: 3 })
  const effectAfterMs = Math.round(performance.now() - from)
  // The customer's other orders may be in partitions of their own, whose events come when they come.
  const summary = await untilSummary(send, customerId, { placedCount: 3, shippedCount: 1 })
  tell(`Its effect was seen ${effectAfterMs} ms after the mutation had answered:`)
  tell(`  ${customerId}: ${describe(summary)}`)

  const { traceId, eventId } = last
  const found = traceId === null ? UNTRACED : await findTrace({ jaeger, traceId, eventId })
  return { mutations, followed: { eventId, traceId, effectAfterMs }, summary, ...found }
}

const UNTRACED: Found = {
  trace: null,
  note: 'The service does not trace: it was started without --import src/service/telemetry.ts.',
}

type Send = (query: string, variables: object) => Promise<Answer>

const operations = {
  placeOrder:
    'mutation PlaceOrder($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id totalCents phase } } }',
  shipOrder: 'mutation ShipOrder($id: ID!) { shipOrder(id: $id) { order { id totalCents phase } } }',
  cancelOrder:
    'mutation CancelOrder($id: ID!, $reason: String!) { cancelOrder(id: $id, reason: $reason) { order { id totalCents phase } } }',
} as const

const words = { placeOrder: 'placed', shipOrder: 'shipped', cancelOrder: 'cancelled' } as const

async function mutate(
  send: Send,
  field: keyof typeof operations,
  customerId: string,
  variables: object,
): Promise<Done> {
  const { data, errors, extensions } = await send(operations[field], variables)
  const order = data?.[field]?.order
  const eventId = extensions?.outbox.eventIds[0]
  if (!order || !eventId)
    throw new DemoError(`The service refused ${field}: ${errors?.[0]?.message ?? 'no reason given'}`)
  const { id, phase, totalCents } = order
  return { what: words[field], orderId: id, customerId, phase, totalCents, eventId, traceId: extensions.outbox.traceId }
}

/** The customer's summary once each of the counts in `least` has come so far. */
async function untilSummary(
  send: Send,
  customerId: string,
  least: Readonly<Record<string, number>>,
): Promise<Record<string, unknown>> {
  const query = `query Summary($customerId: ID!) {
    customerSummary(customerId: $customerId) { placedCount placedTotalCents shippedCount shippedTotalCents cancelledCount }
  }`
  for (const from = performance.now(); performance.now() - from < EFFECT_MS; await sleep(20)) {
    const { data } = await send(query, { customerId })
    const summary = data?.customerSummary as Record<string, unknown> | null | undefined
    if (Object.entries(least).every(([count, value]) => Number(summary?.[count]) >= value)) return summary ?? {}
  }
  throw new DemoError(
    `The effect did not come within ${EFFECT_MS / 1_000} s. The admin port's /readyz says what relay and consumer wait for.`,
  )
}

async function request(url: string, query: string, variables: object): Promise<Answer> {
  if (!URL.canParse(url) || !/^https?:/.test(url)) {
    throw new DemoError(`${url} is no address: --url begins with http:// or https://`)
  }
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query, variables }),
    signal: AbortSignal.timeout(10_000),
  }).catch(() => null)
  if (!response) throw new DemoError(`No service answers at ${url}: start one with npm start, or name it with --url.`)
  const answer = (await response.json().catch(() => null)) as Answer | null
  if (answer === null || !('data' in answer || 'errors' in answer)) {
    throw new DemoError(`No GraphQL API answers at ${url}. Is it the admin port?`)
  }
  return answer
}

function row(what: string, order: string, customer: string, total: string, event: string): string {
  return `  ${what.padEnd(10)} ${order.padEnd(10)} ${customer.padEnd(16)} ${total.padStart(9)}   ${event}`
}

/** The end of an id: it alone differs between ids that were made in one moment. */
function short(id: string): string {
  return `…${id.slice(-8)}`
}

function describe(summary: Record<string, unknown>): string {
  const { placedCount, placedTotalCents, shippedCount, cancelledCount } = summary
  return `${placedCount} placed (${money(Number(placedTotalCents))}), ${shippedCount} shipped, ${cancelledCount} cancelled`
}

function money(cents: number): string {
  return `$${(cents / 100).toFixed(2)}`
}

/** Any trace, by its id. */
async function drawOne(jaeger: string, traceId: string, json: boolean): Promise<void> {
  if (!/^[0-9a-f]{32}$/.test(traceId))
    throw new DemoError('--trace takes the traceId of extensions.outbox: 32 hexadecimal digits.')
  const found = await findTrace({ jaeger, traceId, eventId: null })
  if (json) console.log(JSON.stringify({ traceId, ...found }, null, 2))
  else showTrace({ traceId, eventId: null }, found)
  if (found.trace === null) process.exitCode = 1
}

async function main(): Promise<void> {
  const last = lastStart()
  const { values } = parseArgs({
    options: {
      url: { type: 'string', default: `http://127.0.0.1:${process.env.PORT || last.PORT || 4000}` },
      jaeger: { type: 'string', default: last.JAEGER_URL || 'http://127.0.0.1:16686' },
      trace: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) {
    console.log(HELP)
    return
  }
  // As npm start prints them: the API's with /graphql, Jaeger's with /api/v3.
  const trim = (url: string) => url.replace(/\/(graphql|api\/v3)?\/?$/, '')
  const jaeger = trim(values.jaeger)
  if (values.trace !== undefined) return await drawOne(jaeger, values.trace, values.json)
  const outcome = await demo(trim(values.url), jaeger, values.json ? () => {} : console.log)
  const { traceId, eventId } = outcome.followed
  if (values.json) console.log(JSON.stringify(outcome, null, 2))
  else showTrace({ traceId: traceId ?? '', eventId }, outcome)
}

// Whoever reads only the first lines, as `head` does, closes the pipe.
process.stdout.on('error', () => process.exit(0))

try {
  await main()
} catch (error) {
  const known = error instanceof DemoError || (error instanceof TypeError && 'code' in error)
  console.error(known ? error.message : error)
  process.exitCode = 1
}
