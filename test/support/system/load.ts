/** Clients of the API: they place, ship and cancel orders, and write down what they were told. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { HistoryRecorder, Invocation } from '../../../src/messaging/testing/history/recorder.ts'

export interface LoadOptions {
  /** The API's URLs; clients take them in turn. */
  readonly urls: readonly string[]
  readonly history: HistoryRecorder
  /** @defaultValue 500 */
  readonly customers?: number
  /** Clients at once. @defaultValue 16 */
  readonly clients?: number
  /** Mutations in all; without it, until `stop`. */
  readonly mutations?: number
  /** Milliseconds between two mutations of one client. @defaultValue 0 */
  readonly pauseMs?: number
  /** Called with the events of each mutation that was answered ok. @defaultValue nobody is told */
  readonly onOk?: (eventIds: readonly string[]) => void
}

export interface Load extends AsyncDisposable {
  /** Mutations that were answered ok. */
  readonly okCount: number
  /** Mutations that failed, or of which nobody knows. */
  readonly failedCount: number
  /** Resolves once so many were answered ok, or all clients have ended. */
  reached(okCount: number): Promise<void>
  /** Resolves once all clients have ended. */
  readonly done: Promise<void>
  stop(): Promise<void>
}

interface Answer {
  readonly data?: Readonly<Record<string, { readonly order: { readonly id: string } } | null>> | null
  readonly errors?: readonly { readonly message: string; readonly extensions: { readonly code: string } }[]
  readonly extensions?: { readonly outbox?: { readonly eventIds: readonly string[] } }
}

const PLACE = 'mutation Place($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id } } }'
const SHIP = 'mutation Ship($id: ID!) { shipOrder(id: $id) { order { id } } }'
const CANCEL = 'mutation Cancel($id: ID!, $reason: String!) { cancelOrder(id: $id, reason: $reason) { order { id } } }'

/** Milliseconds that a client waits after a failure. */
const FAILURE_PAUSE_MS = 100

/** Codes under which nothing was changed; any other leaves it open. */
const CERTAIN_FAILURES = new Set(['SERVICE_UNAVAILABLE', 'ILLEGAL_TRANSITION', 'NOT_FOUND', 'BAD_USER_INPUT'])

/** Begins at once. */
export function startLoad(options: LoadOptions): Load {
  const { urls, history, customers = 500, clients = 16, mutations = Number.POSITIVE_INFINITY, pauseMs = 0 } = options
  const { onOk = () => {} } = options
  const ended = new AbortController()
  const waiting = new Set<() => void>()
  let begun = 0
  let okCount = 0
  let failedCount = 0

  async function client(index: number): Promise<void> {
    const open: string[] = []
    const url = urls[index % urls.length] ?? ''
    while (!ended.signal.aborted && begun < mutations) {
      begun += 1
      const mutation = choose(open, `customer-${begun % customers}`)
      const invocation = history.invoke(`client-${index}`, mutation.name, mutation.about)
      const settled = await settle(invocation, () =>
        send(url, mutation.query, mutation.variables(invocation.operation)),
      )
      if (settled !== null) {
        okCount += 1
        if (mutation.name === 'placeOrder') open.push(settled.aggregateId)
        onOk(settled.eventIds)
        for (const wake of waiting) wake()
      }
      if (settled === null) failedCount += 1
      const restMs = settled === null ? FAILURE_PAUSE_MS : pauseMs
      if (restMs > 0) await sleep(restMs)
    }
  }

  const done = Promise.all(Array.from({ length: clients }, (_, index) => client(index))).then(() => {})
  void done.finally(() => ended.abort())
  async function stop(): Promise<void> {
    ended.abort()
    await done
  }
  return {
    get okCount() {
      return okCount
    },
    get failedCount() {
      return failedCount
    },
    async reached(count) {
      while (okCount < count && !ended.signal.aborted) {
        const { promise, resolve } = Promise.withResolvers<void>()
        waiting.add(resolve)
        ended.signal.addEventListener('abort', () => resolve(), { once: true })
        await promise
        waiting.delete(resolve)
      }
    },
    done,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

interface Mutation {
  readonly name: string
  readonly query: string
  readonly about: { readonly aggregateId?: string }
  readonly variables: (operation: string) => object
}

/** Two of three orders are placed, and half of those soon shipped or cancelled. The operation's id travels in the payload where there is room. */
function choose(open: string[], customerId: string): Mutation {
  const dice = Math.random()
  const id = dice < 0.6 ? undefined : open.shift()
  if (id === undefined) {
    const unitPriceCents = 1 + Math.floor(Math.random() * 10_000)
    const variables = (operation: string) => ({
      input: { customerId, items: [{ sku: operation, quantity: 1 + Math.floor(dice * 5), unitPriceCents }] },
    })
    return { name: 'placeOrder', query: PLACE, about: {}, variables }
  }
  if (dice < 0.85) return { name: 'shipOrder', query: SHIP, about: { aggregateId: id }, variables: () => ({ id }) }
  const variables = (operation: string) => ({ id, reason: operation })
  return { name: 'cancelOrder', query: CANCEL, about: { aggregateId: id }, variables }
}

interface Settled {
  readonly aggregateId: string
  readonly eventIds: readonly string[]
}

/** Writes down what became of it; resolves to the order and its events when it was ok. */
async function settle(invocation: Invocation, request: () => Promise<Answer>): Promise<Settled | null> {
  try {
    const { data, errors, extensions } = await request()
    const order = Object.values(data ?? {})[0]?.order
    if (order && !errors) {
      const settled = { aggregateId: order.id, eventIds: extensions?.outbox?.eventIds ?? [] }
      invocation.ok(settled)
      return settled
    }
    const codes = errors?.map((error) => error.extensions.code) ?? []
    const detail = { detail: { codes, messages: errors?.map(({ message }) => message) } }
    if (codes.length > 0 && codes.every((code) => CERTAIN_FAILURES.has(code))) invocation.fail(detail)
    else invocation.info(detail)
  } catch (error) {
    // A connection that was never made has carried nothing.
    const { code } = ((error as Error).cause ?? {}) as { code?: string }
    const detail = { detail: { error: String(error), code } }
    if (code === 'ECONNREFUSED') invocation.fail(detail)
    else invocation.info(detail)
  }
  return null
}

async function send(url: string, query: string, variables: object): Promise<Answer> {
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query, variables }),
    signal: AbortSignal.timeout(20_000),
  })
  return (await response.json()) as Answer
}
