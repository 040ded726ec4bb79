/**
 * `npm run demo`: what the service does, to look at. Against a running service
 * it places orders, ships and cancels some, follows one through Kafka to its
 * effect, and prints the trace of that way.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs, parseEnv, styleText } from 'node:util'
import { describeWay, drawTimeline, type Paint } from './timeline.ts'
import { fetchTrace, type SpanNode } from './trace.ts'

const HELP = `npm run demo -- [options]

Against a running service (npm start): places orders for three customers, ships
and cancels some, follows the last one to its effect, and prints its trace.

  --url URL      the service           (default: that of the last npm start here)
  --jaeger URL   where its traces are  (default: that of the last npm start here)
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

interface Outcome {
  readonly mutations: readonly Done[]
  /** The last order placed, and what became of its event. */
  readonly followed: { readonly eventId: string; readonly traceId: string | null; readonly effectAfterMs: number }
  readonly summary: Record<string, unknown>
  readonly trace: readonly SpanNode[] | null
  /** Why there is no trace. */
  readonly note: string | null
}

async function demo(url: string, jaeger: string, tell: (line: string) => void): Promise<Outcome> {
  const send = (query: string, variables: object) => request(url, query, variables)
  const mutations: Done[] = []
  const note = (done: Done) => {
    mutations.push(done)
    tell(row(done.what, short(done.orderId), done.customerId, money(done.totalCents), short(done.eventId)))
    return done
  }
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
  const summary = await untilSummary(send, customerId, 3)
  const effectAfterMs = Math.round(performance.now() - from)
  tell(`Its effect was seen ${effectAfterMs} ms after the mutation had answered:`)
  tell(`  ${customerId}: ${describe(summary)}`)

  const { trace, note: why } = await traceOf(jaeger, last)
  return {
    mutations,
    followed: { eventId: last.eventId, traceId: last.traceId, effectAfterMs },
    summary,
    trace,
    note: why,
  }
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

async function untilSummary(send: Send, customerId: string, placedCount: number): Promise<Record<string, unknown>> {
  const query = `query Summary($customerId: ID!) {
    customerSummary(customerId: $customerId) { placedCount placedTotalCents shippedCount shippedTotalCents cancelledCount }
  }`
  for (const from = performance.now(); performance.now() - from < EFFECT_MS; await sleep(20)) {
    const { data } = await send(query, { customerId })
    const summary = data?.customerSummary as Record<string, unknown> | null | undefined
    if (Number(summary?.placedCount) >= placedCount) return summary ?? {}
  }
  throw new DemoError(
    `The effect did not come within ${EFFECT_MS / 1_000} s. The admin port's /readyz says what relay and consumer wait for.`,
  )
}

async function traceOf(jaeger: string, { traceId, eventId }: Done): Promise<Pick<Outcome, 'trace' | 'note'>> {
  if (!traceId)
    return {
      trace: null,
      note: 'The service does not trace: it was started without --import src/service/telemetry.ts.',
    }
  const trace = await withProgress('Waiting for its spans to arrive at Jaeger', (step) =>
    fetchTrace(jaeger, traceId, eventId, step),
  )
  if (trace === null)
    return { trace, note: `No Jaeger answers at ${jaeger}; npm start brings one where Go is installed.` }
  if (trace.roots.length > 0)
    return { trace: trace.roots, note: trace.whole ? null : 'Some spans of this trace have not arrived at Jaeger.' }
  return {
    trace: null,
    note: `Jaeger at ${jaeger} has no trace ${traceId}. npm start prints where its Jaeger is: name it with --jaeger.`,
  }
}

async function request(url: string, query: string, variables: object): Promise<Answer> {
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query, variables }),
    signal: AbortSignal.timeout(10_000),
  }).catch(() => null)
  if (!response) throw new DemoError(`No service answers at ${url}: start one with npm start, or name it with --url.`)
  return (await response.json()) as Answer
}

/** Shows on standard error that something is waited for, and leaves nothing behind in a terminal. */
async function withProgress<T>(what: string, work: (step: () => void) => Promise<T>): Promise<T> {
  const { stderr } = process
  let steps = 0
  stderr.write(`${what} `)
  try {
    return await work(() => {
      steps += 1
      if (steps % STEPS_PER_DOT === 0) stderr.write('.')
    })
  } finally {
    stderr.write(stderr.isTTY ? '\r\x1b[K' : '\n')
  }
}

const STEPS_PER_DOT = 2

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

const colors: Readonly<Record<string, Parameters<typeof styleText>[0]>> = {
  'orders-api': 'cyan',
  'outbox-relay': 'yellow',
  'orders-summary': 'green',
}

/** Colours in a terminal that wants them: `styleText` asks it, and `NO_COLOR`. */
const paint: Paint = (service, text) => styleText(colors[service] ?? 'magenta', text, { stream: process.stdout })

/** What the last `npm start` of this folder has told its service; nothing where there was none. */
function lastStart(): NodeJS.Dict<string> {
  try {
    return parseEnv(readFileSync(join(process.env.DATA_DIR || '.data', 'env'), 'utf8'))
  } catch {
    return {}
  }
}

function showTrace({ followed: { traceId, eventId }, trace, note }: Outcome): void {
  if (trace) {
    const way = describeWay(trace, eventId)
    console.log(`\nTrace ${traceId}`)
    if (way !== null) console.log(way)
    console.log(`\n${drawTimeline(trace, { columns: process.stdout.columns ?? 100, paint }).join('\n')}`)
  }
  if (note !== null) console.log(`\n${note}`)
}

async function main(): Promise<void> {
  const last = lastStart()
  const { values } = parseArgs({
    options: {
      url: { type: 'string', default: `http://127.0.0.1:${process.env.PORT || last.PORT || 4000}` },
      jaeger: { type: 'string', default: last.JAEGER_URL || 'http://127.0.0.1:16686' },
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
  const outcome = await demo(trim(values.url), trim(values.jaeger), values.json ? () => {} : console.log)
  if (values.json) console.log(JSON.stringify(outcome, null, 2))
  else showTrace(outcome)
}

try {
  await main()
} catch (error) {
  const known = error instanceof DemoError || (error instanceof TypeError && 'code' in error)
  console.error(known ? error.message : error)
  process.exitCode = 1
}
