/** The drivers that an application brings: an old pg, over which the truth is told all the same, and those that are refused. */
import { createRequire } from 'node:module'
import { expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'

const require = createRequire(import.meta.url)
const PostgresClient: typeof Knex.Client = require('knex/lib/dialects/postgres')
const MysqlClient: typeof Knex.Client = require('knex/lib/dialects/mysql')

/** Knex over the oldest pg that package.json allows. */
class OldestDriver extends PostgresClient {
  _driver(): unknown {
    return require('pg-8.11')
  }
}

const append = (trx: Knex.Transaction) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'o-1')])
const backend = (trx: Knex.Transaction) => trx.raw('select pg_backend_pid() as pid').then(({ rows }) => rows[0].pid)

test('tells a commit from a rollback over the oldest pg that is allowed, and keeps the connection', async () => {
  await using database = await createTestDatabase()
  const pool = database.createPool({ client: OldestDriver, pool: { min: 0, max: 1 } })
  const driver: { Client: { prototype: object } } = pool.client.driver
  const swallowing = inTransaction(pool, (trx) =>
    append(trx)
      .then(() => trx.raw('select 1 / 0'))
      .catch(() => {}),
  )

  expect(driver.Client.prototype).not.toHaveProperty('getTransactionStatus')
  await expect(swallowing).rejects.toMatchObject({ code: 'MESSAGING_ROLLED_BACK' })
  const first = await inTransaction(pool, backend)
  await inTransaction(pool, append)

  expect(await inTransaction(pool, backend)).toBe(first)
  expect(await pool('outbox').count({ count: '*' })).toEqual([{ count: '1' }])
})

test('destroys a connection whose ROLLBACK is not answered over the oldest pg as well', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ client: OldestDriver, connection: proxy.url, pool: { min: 0, max: 1 } })
  const before = await inTransaction(pool, backend)
  const held = proxy.meet('ROLLBACK', 'answer held')

  const failing = inTransaction(pool, async () => {
    throw new Error('refused')
  })
  await held
  const waiting = inTransaction(pool, backend)

  await expect(failing).rejects.toThrow('refused')
  expect(await waiting).not.toBe(before)
})

test('finds out over the oldest pg that it committed when the answer to COMMIT is lost', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ client: OldestDriver, connection: proxy.url })
  const lost = proxy.meet('COMMIT', 'answer lost')

  await inTransaction(pool, append)

  await lost
  expect(await database.db('outbox').count({ count: '*' })).toEqual([{ count: '1' }])
})

test('relays over the oldest pg', async () => {
  await using database = await createTestDatabase()
  const pool = database.createPool({ client: OldestDriver })
  const broker = new InMemoryBroker()
  await using relay = startRelay({ db: pool, publisher: broker.createPublisher() })

  await inTransaction(pool, append)

  await eventually('the event on its topic', () => relay.status().publishedCount === 1)
  expect(relay.status()).toMatchObject({ ready: true, problems: [] })
})

test('refuses a handle over another driver before anything is written or started', async () => {
  // It has no connection: nothing to be opened or closed.
  const other = knex({ client: MysqlClient })
  const publisher = new InMemoryBroker().createPublisher()

  await expect(inTransaction(other, append)).rejects.toMatchObject({ code: 'MESSAGING_INVALID_OPTION', option: 'db' })
  expect(() => startRelay({ db: other, publisher })).toThrow("Option db must be a Knex instance whose client is 'pg'")
})
