/** The API on a real database, for a test: over HTTP, as clients meet it. */
import type { Knex } from 'knex'
import { type GraphQLServer, type GraphQLServerOptions, startGraphQLServer } from '../../src/graphql/server.ts'
import { defaultTopicFor } from '../../src/messaging/index.ts'

/** One line of the log. */
export interface LogLine {
  readonly level: string
  readonly fields: object
  readonly message: string
}

export interface TestApi extends AsyncDisposable {
  readonly server: GraphQLServer
  readonly url: string
  readonly log: readonly LogLine[]
  /** Sends an operation; resolves to the answer's body. */
  send(query: string, variables?: object): Promise<Answer>
}

export interface Answer {
  // biome-ignore lint/suspicious/noExplicitAny: a test reaches into whatever shape its own query has
  readonly data?: any
  readonly errors?: readonly {
    readonly message: string
    readonly path?: readonly string[]
    readonly extensions: Record<string, unknown>
  }[]
  readonly extensions?: { readonly outbox: { readonly eventIds: readonly string[]; readonly traceId: string | null } }
}

/** Starts the API on any free port. */
export async function startApi(db: Knex, options: Partial<GraphQLServerOptions> = {}): Promise<TestApi> {
  const log: LogLine[] = []
  const write = (level: string) => (fields: object, message: string) => {
    log.push({ level, fields, message })
  }
  const server = await startGraphQLServer({
    db,
    topicFor: defaultTopicFor(''),
    host: '127.0.0.1',
    port: 0,
    introspection: true,
    graceMs: 5_000,
    logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
    ...options,
  })
  return {
    server,
    url: server.url,
    log,
    async send(query, variables = {}) {
      const response = await fetch(`${server.url}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query, variables }),
      })
      return (await response.json()) as Answer
    },
    [Symbol.asyncDispose]: () => server.stop(),
  }
}

/** A mutation that places an order; `input` may be changed through variables. */
export const PLACE = 'mutation Place($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id version } } }'

/** An order that is fine. */
export const input = { customerId: 'customer-1', items: [{ sku: 'coffee', quantity: 2, unitPriceCents: 1250 }] }
