import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { isDatabaseUnavailable } from '../../src/graphql/database-failure.ts'
import { silentLogger } from '../../src/messaging/index.ts'
import { placeOrder } from '../../src/orders/commands.ts'
import { createDatabase, type PoolProfile } from '../../src/service/database.ts'
import { parsePostgresUrl } from '../../src/service/postgres-url.ts'
import { createTestDatabase } from '../support/database.ts'
import { createPostgresProxy } from '../support/postgres-proxy.ts'

const command = { customerId: 'customer-1', items: [{ sku: 'coffee', quantity: 1, unitPriceCents: 100 }] }

// Limits that are met on purpose are short, and still longer than anything that goes well on a busy machine.
function openPool(url: string, changes: Partial<PoolProfile> = {}): AsyncDisposable & { db: Knex } {
  const db = createDatabase(parsePostgresUrl(url), 'api', silentLogger, changes)
  return { db, [Symbol.asyncDispose]: () => db.destroy() }
}

async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return await work.then(
    () => null,
    (error: unknown) => error,
  )
}

test('PC-36: a path that falls silent is an error within the query timeout, and the pool has its slot back', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using proxy = await createPostgresProxy(database.url)
  await using pool = openPool(proxy.url, { connectionCount: 1, queryTimeoutMs: 2_000 })
  const silent = proxy.meet('select 1', 'answer held')

  const error = await failureOf(pool.db.raw('select 1'))

  await silent
  expect(isDatabaseUnavailable(error)).toBe(true)
  expect((await pool.db.raw('select 2 as two')).rows).toEqual([{ two: 2 }])
})

test('PC-44: a connection whose ROLLBACK is not answered is never lent again', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using proxy = await createPostgresProxy(database.url)
  await using pool = openPool(proxy.url, { connectionCount: 1, queryTimeoutMs: 2_000 })
  const held = proxy.meet('ROLLBACK', 'answer held')

  const failing = pool.db.transaction(async (trx) => {
    await trx.raw('select pg_backend_pid()')
    throw new Error('a refusal')
  })
  await failureOf(failing)
  await held

  const { order } = await placeOrder(pool.db, command)
  expect(order.version).toBe(1)
})

test('PC-44: after a statement timeout inside a transaction the next one is clean', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using pool = openPool(database.url, { connectionCount: 1, statementTimeoutMs: 1_000 })

  const error = await failureOf(pool.db.transaction((trx) => trx.raw('select pg_sleep(10)')))

  expect(error).toMatchObject({ code: '57014' })
  expect(isDatabaseUnavailable(error)).toBe(true)
  await placeOrder(pool.db, command)
})

test('PC-37: a backend that is ended costs one operation, in work or idle, and nothing else', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using pool = openPool(database.url, { connectionCount: 1 })
  const endOurs = () =>
    database.db.raw(
      `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'orders-api' and datname = current_database()`,
    )

  const inWork = pool.db.transaction(async (trx) => {
    await trx.raw('select 1')
    await endOurs()
    await trx.raw('select 2')
  })

  expect(isDatabaseUnavailable(await failureOf(inWork))).toBe(true)
  await placeOrder(pool.db, command)
  await endOurs()
  await failureOf(pool.db.raw('select 1'))
  await placeOrder(pool.db, command)
})

test('PC-38: many mutations share few connections, and waiting for one is bounded', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using pool = openPool(database.url, { connectionCount: 4, acquireTimeoutMs: 60_000 })

  await Promise.all(Array.from({ length: 20 }, () => placeOrder(pool.db, command)))

  await using narrow = openPool(database.url, { connectionCount: 1, acquireTimeoutMs: 2_000 })
  await narrow.db.transaction(async (trx) => {
    await trx.raw('select 1')
    const error = await failureOf(placeOrder(narrow.db, command))
    expect(error).toMatchObject({ name: 'KnexTimeoutError' })
    expect(isDatabaseUnavailable(error)).toBe(true)
  })
})

test('each role is known to the database by its name and its limits', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using pool = openPool(database.url)

  const { rows } = await pool.db.raw(
    `select name, setting from pg_settings where name in ('application_name', 'statement_timeout', 'idle_in_transaction_session_timeout')`,
  )

  expect(
    Object.fromEntries(rows.map(({ name, setting }: { name: string; setting: string }) => [name, setting])),
  ).toEqual({
    application_name: 'orders-api',
    statement_timeout: '5000',
    idle_in_transaction_session_timeout: '10000',
  })
})

test('what the pool says of a connection that it could not have is one line, without a stack', async () => {
  const said: string[] = []
  const logger = { ...silentLogger, warn: (_fields: object, message: string) => void said.push(message) }
  const server = parsePostgresUrl('postgres://nobody@127.0.0.1:1/orders')
  {
    const db = createDatabase(server, 'api', logger, { acquireTimeoutMs: 1_000 })
    await using _pool = { [Symbol.asyncDispose]: () => db.destroy() }
    await failureOf(db.raw('select 1'))
  }

  expect(said.length).toBeGreaterThan(0)
  for (const message of said) expect(message).not.toMatch(/\n|node_modules/)
})
