/** Relays of other processes hear of a commit, cheaply, and a commit never fails because of it. */
import { once } from 'node:events'
import { expect, test } from '@jest/globals'
import pg from 'pg'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { laneOf, murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import {
  lanesOfBitmap,
  startWakeNotifier,
  toBitmap,
  WAKE_CHANNEL,
} from '../../../src/messaging/outbox/wake-notifier.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

/** Listens as a relay of another process does. */
async function listen({ url }: TestDatabase) {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(`listen ${WAKE_CHANNEL}`)
  const payloads: string[] = []
  client.on('notification', ({ payload }) => payloads.push(payload ?? ''))
  return {
    payloads,
    async until(condition: () => boolean) {
      while (!condition()) await once(client, 'notification')
    },
    lanes: () => new Set(payloads.flatMap(lanesOfBitmap)),
    [Symbol.asyncDispose]: () => client.end(),
  }
}

const laneOfId = (id: string) => laneOf(murmur2(id))

test('notifies of the lanes of a commit, as a bitmap', async () => {
  await using database = await createTestDatabase()
  await using listener = await listen(database)
  await using _notifier = startWakeNotifier(database.db)

  await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('A', 'a'), orderEvent('B', 'b')]))
  await listener.until(() => listener.payloads.length > 0)

  expect(listener.payloads).toEqual([toBitmap([laneOfId('a'), laneOfId('b')]).toString(16)])
})

test('makes few notifications of many commits, none of them in a commit, and leaves no lane out (PC-46)', async () => {
  await using database = await createTestDatabase()
  await using listener = await listen(database)
  await using _notifier = startWakeNotifier(database.db, { intervalMs: 1_000 })
  const ids = Array.from({ length: 100 }, (_, index) => `o-${index}`)
  const expected = new Set(ids.map(laneOfId))
  // NOTIFY in a transaction makes all commits of the server wait for one lock.
  const inCommits: string[] = []
  database.db.on('query', ({ sql }) => inCommits.push(sql))

  await Promise.all(ids.map((id) => inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('A', id)]))))
  await listener.until(() => listener.lanes().size === expected.size)

  expect(listener.lanes()).toEqual(expected)
  expect(listener.payloads.length).toBeLessThan(50)
  expect(inCommits.filter((sql) => /notify/i.test(sql))).toEqual([])
})

test('commits payloads far larger than a notification may be (PC-41)', async () => {
  await using database = await createTestDatabase()
  await using listener = await listen(database)
  await using _notifier = startWakeNotifier(database.db)
  const payloads = ['x'.repeat(9_000), '😀'.repeat(3_000)]

  for (const payload of payloads) {
    await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('A', 'a', { payload })]))
  }
  await listener.until(() => listener.payloads.length > 0)

  expect(await database.db('outbox').orderBy('seq').pluck('payload')).toEqual(payloads)
  expect(Math.max(...listener.payloads.map((payload) => payload.length))).toBeLessThanOrEqual(16)
})

test('commits and goes on when its connection dies, and opens another', async () => {
  await using database = await createTestDatabase()
  await using listener = await listen(database)
  const warned = Promise.withResolvers<void>()
  const logger = { debug() {}, info() {}, warn: () => warned.resolve(), error() {} }
  const pool = database.createPool({ connection: `${database.url}?application_name=notifier` })
  await using _notifier = startWakeNotifier(pool, { logger })
  const commit = (id: string) => inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('A', id)]))

  await commit('a')
  await listener.until(() => listener.lanes().has(laneOfId('a')))
  await database.db.raw(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'notifier' and query like '%pg_notify%'`,
  )
  await commit('b')
  await warned.promise
  await commit('c')
  await listener.until(() => listener.lanes().has(laneOfId('c')))

  expect(await database.db('outbox').count({ count: '*' })).toEqual([{ count: '3' }])
})

test('stops at once while it has nothing to do, and hears nothing afterwards', async () => {
  await using database = await createTestDatabase()
  await using listener = await listen(database)
  await using notifier = startWakeNotifier(database.db)

  await notifier.stop()
  await notifier.done
  await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('A', 'a')]))
  await database.db.raw('select pg_notify(?, ?)', [WAKE_CHANNEL, 'end'])
  await listener.until(() => listener.payloads.includes('end'))

  expect(listener.payloads).toEqual(['end'])
})

test('notifies of what was committed before it was stopped', async () => {
  await using database = await createTestDatabase()
  await using listener = await listen(database)
  await using notifier = startWakeNotifier(database.db, { intervalMs: 600_000 })
  const commit = (id: string) => inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('A', id)]))

  await commit('a')
  await listener.until(() => listener.payloads.length > 0)
  await commit('b')
  await notifier.stop()
  await listener.until(() => listener.lanes().has(laneOfId('b')))

  expect(listener.payloads).toHaveLength(2)
})

test('reads back the lanes it wrote, and none from what it did not write', () => {
  const lanes = [0, 1, 31, 32, 53, 63]

  expect(lanesOfBitmap(toBitmap(lanes).toString(16))).toEqual(lanes)
  expect(['', 'end', '0x1', '11111111111111111', '-1'].flatMap(lanesOfBitmap)).toEqual([])
})
