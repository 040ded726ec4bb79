/** Statements that the client gives up (`query_timeout`), whose outcome nobody knows: nothing is committed beside them, and no connection is lent on. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { processOnce } from '../../../src/messaging/inbox/process-once.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'

const EVENT_ID = '01a22d02-357a-71c0-add4-7e16800a798d'
/** Whether Knex writes the statement into the message. */
const GIVEN_UP = /Query read timeout$/

test.each([
  ['one that was used before', true],
  ['a new one', false],
])('a BEGIN that was given up leaves no transaction open on its connection: %s', async (_which, isKnown) => {
  await using database = await createTestDatabase()
  await database.db.raw('create table notes (n int primary key)')
  await using proxy = await createPostgresProxy(database.url)
  const pool = impatientPool(database, proxy.url)
  if (isKnown) await inTransaction(pool, (trx) => append(trx, 'a'))
  else await pool.raw('select 1')

  const held = proxy.meet('BEGIN', 'answer held')
  await expect(inTransaction(pool, (trx) => append(trx, 'b'))).rejects.toThrow(GIVEN_UP)
  await held
  proxy.release()

  await pool('notes').insert({ n: 1 })
  // In a transaction that is open this would fail all that follow.
  await expect(pool('notes').insert({ n: 1 })).rejects.toThrow('duplicate key')
  await inTransaction(pool, (trx) => append(trx, 'c'))
  expect(await database.db('notes').pluck('n')).toEqual([1])
  expect(await stored(database.db)).toEqual(isKnown ? ['a', 'c'] : ['c'])
})

test('a savepoint whose RELEASE was given up is not committed beside what is done in its place', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = impatientPool(database, proxy.url)
  await pool.raw('select 1')
  const held = proxy.meet('RELEASE', 'answer held')

  const committed = inTransaction(pool, async (trx) => {
    await append(trx, 'before')
    await inTransaction(trx, (savepoint) => append(savepoint, 'paid')).catch(async () => {
      await held
      proxy.release()
      await append(trx, 'not paid')
    })
  })

  await expect(committed).rejects.toThrow()
  expect(await stored(database.db)).toEqual([])
})

test('a transaction whose append was given up cannot be committed without it', async () => {
  await using database = await createTestDatabase()
  await database.db.raw('create table state (id text)')
  const pool = impatientPool(database, database.url)
  const { promise: isAppended, resolve: appended } = Promise.withResolvers<void>()
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>()
  const other = inTransaction(database.db, async (trx) => {
    await append(trx, 'hot')
    appended()
    await mayEnd
  })
  await isAppended

  const committed = inTransaction(pool, async (trx) => {
    await trx('state').insert({ id: 'hot' })
    await append(trx, 'hot').catch(() => {})
    end()
    await other
  })

  await expect(committed).rejects.toThrow()
  expect(await database.db('state')).toEqual([])
})

test('a transaction whose processOnce was given up does not remember the event', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = impatientPool(database, proxy.url)
  const held = proxy.meet('insert into processed_events', 'answer held')

  const committed = inTransaction(pool, async (trx) => {
    await processOnce(trx, 'c', { id: EVENT_ID }, async () => {}).catch(() => {})
    await held
    proxy.release()
  })

  await expect(committed).rejects.toThrow()
  expect(await database.db('processed_events')).toEqual([])
})

test.each<[string, (db: Knex, work: (trx: Knex.Transaction) => Promise<unknown>) => Promise<unknown>]>([
  ['we have begun', inTransaction],
  ['Knex has begun', (db, work) => db.transaction(work)],
])('a savepoint whose undoing was given up is not committed, in a transaction that %s', async (_who, begin) => {
  await using database = await createTestDatabase()
  await database.db.raw('create table optional (id integer)')
  const pool = impatientPool(database, database.url)

  const committed = begin(pool, async (trx) => {
    await append(trx, 'before')
    await inTransaction(trx, async (savepoint) => {
      const slow = savepoint.raw('insert into optional select 1 from pg_sleep(0.9)')
      await Promise.all([slow, Promise.reject(new Error('undo it'))])
    }).catch(() => {})
    await append(trx, 'after')
  })

  await expect(committed).rejects.toThrow()
  expect(await stored(database.db)).toEqual([])
  expect(await database.db('optional')).toEqual([])
})

test('a transaction that was given up keeps its locks no longer than its statement, though nobody needs the connection', async () => {
  await using database = await createTestDatabase()
  const pool = impatientPool(database, database.url, 2)
  const { promise: isOver, resolve: end } = Promise.withResolvers<void>()
  // Released later, it is the one that is lent from then on.
  const other = inTransaction(pool, async (trx) => {
    await trx.raw('select 1')
    await isOver
  })

  await expect(
    inTransaction(pool, async (trx) => {
      await append(trx, 'hot')
      await trx.raw('select pg_sleep(0.8)')
    }),
  ).rejects.toThrow(GIVEN_UP)
  end()
  await other
  for (let turn = 0; turn < 5; turn += 1) await inTransaction(pool, (trx) => append(trx, `other ${turn}`))

  await eventually('its end', async () => {
    const { rows } = await database.db.raw(
      `select pid
         from pg_stat_activity
        where datname = current_database()
          and pid <> pg_backend_pid()
          and xact_start is not null`,
    )
    return rows.length === 0
  })
  await inTransaction(database.db, (trx) => append(trx, 'hot'))
})

/** A pool of connections that wait half a second for a statement. */
function impatientPool(database: TestDatabase, url: string, max = 1): Knex {
  const connection = { connectionString: url, query_timeout: 500 }
  return database.createPool({ connection: connection as Knex.PgConnectionConfig, pool: { min: 0, max } })
}

function append(trx: Knex.Transaction, id: string) {
  return appendToOutbox(trx, [orderEvent('OrderPlaced', id)])
}

async function stored(db: Knex): Promise<string[]> {
  return await db('outbox').orderBy('seq').pluck('aggregate_id')
}
