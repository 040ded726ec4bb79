/** What nobody may read in logs, spans, metrics and refusals, looked for in all that the whole service says, also where it fails. */

import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import { appendToOutbox, inTransaction } from '../../src/messaging/index.ts'
import { startOtlpSink } from '../support/otlp/sink.ts'
import { type Service, startService } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { readMetrics, startReadyService } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

/** One for each place, so that a leak says where it comes from. */
const secrets = {
  customer: 'canary-customer-4711',
  payload: 'canary-payload-4711',
  eventHeader: 'canary-event-header-4711',
  authorization: 'canary-authorization-4711',
  cookie: 'canary-cookie-4711',
  address: 'canary-address-4711',
  reason: 'canary-reason-4711',
  password: 'canary-password-4711',
}

let stack: SystemStack
beforeAll(async () => {
  stack = await startSystemStack({ durable: false })
})
afterAll(async () => {
  await stack?.[Symbol.asyncDispose]()
})

test('PC-65 no customer, payload, header or password is in what the service says, though statements fail at every turn', async () => {
  await using sink = await startOtlpSink()
  const env = await stack.freshEnv()
  await using db = await openWithPassword(String(env.DATABASE_URL))
  await using service = await startReadyService(stack.dir, {
    ...env,
    DATABASE_URL: db.url,
    LOG_LEVEL: 'trace',
    OTEL_EXPORTER_OTLP_ENDPOINT: sink.endpoint,
    OTEL_METRICS_EXPORTER: 'otlp',
    OTEL_METRIC_EXPORT_INTERVAL: '1000',
  })

  const answers = [await order(service), await cancelUnknown(service)]
  await appendDirectly(db.knex)
  await refuseChanges(db.knex, 'customer_summary')
  answers.push(await order(service))
  await sink.until((spans) => spans.some(({ name, status }) => name.startsWith('process') && status === 2))
  await refuseChanges(db.knex, 'orders')
  answers.push(await order(service))
  await sink.until((spans) => spans.filter(({ name }) => name === 'POST /graphql').length >= answers.length)
  await until('Metrics at the collector', async () => (sink.paths.includes('/v1/metrics') ? true : null))
  const metrics = await readMetrics(service)
  await service.kill('SIGTERM')

  // All of it has happened: an error that was told apart, spans that failed, a log of it.
  expect(answers.at(-1)).toContain('INTERNAL')
  const log = await readFile(service.logFile, 'utf8')
  expect(log).toContain('A request failed unexpectedly')
  expect(leaksIn({ answers: answers.join('\n'), log, metrics, exported: sink.text() })).toEqual([])
})

test('a database that cannot be had, or an address that cannot be read, is told without its password', async () => {
  const outage = `postgres://orders:${secrets.password}@127.0.0.1:1/orders`
  const malformed = `postgres://orders:${secrets.password}@127.0.0.1:port/orders`
  const env = { ...(await stack.freshEnv()), LOG_LEVEL: 'trace' }
  const started = (name: string, url: string) =>
    startService({ name, roles: ['api', 'relay', 'consumer'], env: { ...env, DATABASE_URL: url }, dir: stack.dir })
  await using waiting = await started('waiting', outage)
  await using refused = await started('refused', malformed)

  await untilSaid(waiting, 'Postgres cannot be reached yet')
  await untilSaid(refused, 'DATABASE_URL')

  const said = { outage: await readFile(waiting.logFile, 'utf8'), malformed: await readFile(refused.logFile, 'utf8') }
  expect(leaksIn(said)).toEqual([])
})

/** Each secret that stands in one of `texts`, with what is around it. */
function leaksIn(texts: Readonly<Record<string, string>>): string[] {
  return Object.entries(texts).flatMap(([where, text]) =>
    Object.entries(secrets).flatMap(([what, secret]) => {
      const at = text.indexOf(secret)
      return at === -1 ? [] : [`${what} in ${where}: ${text.slice(Math.max(0, at - 300), at + 100)}`]
    }),
  )
}

/** The same database under a role that has a password. */
async function openWithPassword(url: string) {
  const admin = knex({ client: 'pg', connection: url })
  const { pathname } = new URL(url)
  const role = `role${pathname.slice(1)}`
  await admin.raw(`create role ${role} superuser login password '${secrets.password}'`)
  const own = new URL(url)
  own.username = role
  own.password = secrets.password
  return {
    url: own.href,
    knex: admin,
    async [Symbol.asyncDispose]() {
      await admin.destroy()
    },
  }
}

/** From now on Postgres refuses to change `table`, and quotes what was to be stored. */
async function refuseChanges(db: Knex, table: string): Promise<void> {
  await db.raw(`
    create function refuse_${table}() returns trigger language plpgsql as $$
    begin
      raise exception 'refused: %', new.customer_id using detail = 'Failing row contains ' || new::text;
    end $$`)
  await db.raw(
    `create trigger refuse before insert or update on ${table} for each row execute function refuse_${table}()`,
  )
}

async function order(service: Service): Promise<string> {
  return await send(service, {
    query: 'mutation PlaceOrder($input: PlaceOrderInput!) { placeOrder(input: $input) { order { id } } }',
    variables: {
      input: { customerId: secrets.customer, items: [{ sku: secrets.payload, quantity: 1, unitPriceCents: 100 }] },
    },
  })
}

/** With a value in the query's own text. */
async function cancelUnknown(service: Service): Promise<string> {
  const id = '019c0000-0000-7000-8000-000000000000'
  return await send(service, {
    query: `mutation { cancelOrder(id: "${id}", reason: "${secrets.reason}") { order { id } } }`,
  })
}

async function send({ url }: Service, body: object): Promise<string> {
  const response = await fetch(`${url}/graphql?token=${secrets.address}`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${secrets.authorization}`,
      cookie: `session=${secrets.cookie}`,
    },
    body: JSON.stringify(body),
  })
  return await response.text()
}

async function appendDirectly(db: Knex): Promise<void> {
  await inTransaction(db, (trx) =>
    appendToOutbox(trx, [
      {
        type: 'OrderNoted',
        aggregate: { type: 'order', id: 'order-1' },
        payload: { note: secrets.payload },
        headers: { note: secrets.eventHeader },
      },
    ]),
  )
}

async function untilSaid(service: Service, words: string): Promise<void> {
  await until(`"${words}" in the log of ${service.name}`, async () => {
    const text = await readFile(service.logFile, 'utf8').catch(() => '')
    return text.includes(words) ? true : null
  })
}
