/** Statements of a consumer that its client gives up (`query_timeout`), or whose session the server ends: whom that is laid at the door of. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import type { Handler } from '../../../src/messaging/consumer/handlers.ts'
import type { ConsumerOptions } from '../../../src/messaging/consumer/options.ts'
import { listDeadLetters, listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'
import { keepLog } from '../../support/telemetry/log-lines.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createEffects, createSetting, idOf, joinOn, writeEffect } from './setting.ts'

test('an effect whose COMMIT was given up, and took place, has no dead letter', async () => {
  await using setting = await impatientSetting(writeEffect, { maxAttempts: 1 })
  await setting.db.raw(`
    create function slowly() returns trigger language plpgsql as $$ begin perform pg_sleep(0.8); return null; end $$;
    create constraint trigger slow after insert on effects deferrable initially deferred for each row execute function slowly()`)
  const record = recordOf(0)

  await setting.subscriber.deliverAll([record])

  expect(await setting.effects()).toEqual([idOf(record)])
  expect(await listDeadLetters(setting.db)).toEqual([])
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test.each([
  ["a handler's statement", 'insert into "effects"'],
  ["the consumer's own last statement", 'with before as'],
])('a database that is silent costs no attempt: in %s', async (_where, statement) => {
  let calls = 0
  await using setting = await impatientSetting(
    async (trx, event) => {
      calls += 1
      // The first call may be one of several events together, of which no attempt counts.
      if (calls <= 2) void silentFrom(statement, setting)
      await writeEffect(trx, event)
    },
    { maxAttempts: 1 },
  )
  const record = recordOf(0)

  await setting.subscriber.deliverAll([record])

  expect(calls).toBeGreaterThan(1)
  expect(await setting.effects()).toEqual([idOf(record)])
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test.each<[string, (trx: Knex.Transaction, db: Knex) => Promise<unknown>]>([
  ['runs on for long', (trx) => trx.raw('select pg_sleep(20)')],
  ['runs on for long, and it swallows that', (trx) => trx.raw('select pg_sleep(20)').then(null, () => {})],
  ['has ended when it is looked at', (trx) => trx.raw('select pg_sleep(0.505)')],
  [
    'has ended long since, and it swallows that',
    async (trx, db) => {
      const backend = await backendOf(trx)
      await trx.raw('select pg_sleep(0.505)').then(null, () => {})
      await untilEnded(db, backend)
    },
  ],
  [
    'waits behind others of it',
    (trx) => Promise.all(Array.from({ length: 60 }, () => trx.raw('select pg_sleep(0.02)'))),
  ],
])(
  'a handler whose statement takes longer than its client waits, on a database that answers, parks its key: one that %s',
  async (_how, work) => {
    await using setting = await impatientSetting(
      async (trx, event) => {
        await writeEffect(trx, event)
        if (event.aggregate.id === 'a') await work(trx, setting.db)
      },
      { maxAttempts: 2 },
    )
    const [bad, good] = [recordOf(0, { key: 'a' }), recordOf(1, { key: 'b' })]

    await setting.subscriber.deliverAll([bad, good])

    expect(await setting.effects()).toEqual([idOf(good)])
    expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', aggregateId: 'a' }])
  },
)

test('a consumer goes on when the connections that its pool has fall silent, and new ones answer', async () => {
  await using setting = await impatientSetting(writeEffect, {}, 3)
  await Promise.all([1, 2, 3].map(() => setting.pool.raw('select pg_sleep(0.05)')))
  const record = recordOf(0)

  setting.proxy.hold('')
  await setting.subscriber.deliverAll([record])

  expect(await setting.effects()).toEqual([idOf(record)])
})

test('a consumer whose BEGIN was given up leaves no transaction open in its pool', async () => {
  await using setting = await impatientSetting(writeEffect, {})
  await setting.subscriber.deliverAll([recordOf(0)])
  const held = setting.proxy.meet('BEGIN', 'answer held')

  const delivered = setting.subscriber.deliver([recordOf(1)])
  await held
  const plain = setting.pool('notes').insert({ n: 1 })
  setting.proxy.release()
  await delivered
  await plain

  expect(await setting.db('notes').pluck('n')).toEqual([1])
})

test.each<[string, (trx: Knex.Transaction) => Promise<unknown>]>([
  ['before a statement', (trx) => trx.raw('select 1')],
  ['before a statement whose failure it swallows', (trx) => trx.raw('select 1').then(null, () => {})],
  ['in an optional savepoint', (trx) => inTransaction(trx, (savepoint) => savepoint.raw('select 1')).catch(() => {})],
  ['at its end', async () => {}],
])('a handler that idles longer than the server allows parks its key: %s', async (_when, work) => {
  await using setting = await createSetting(
    async (trx, event) => {
      await writeEffect(trx, event)
      const backend = await backendOf(trx)
      await trx.raw(`set local idle_in_transaction_session_timeout = '30ms'`)
      await untilEnded(setting.db, backend)
      await work(trx)
    },
    { maxAttempts: 2 },
  )

  await setting.subscriber.deliverAll([recordOf(0)])

  expect(await setting.effects()).toEqual([])
  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', attempts: 2, reason: expect.stringContaining('25P03') },
  ])
})

/** A consumer whose client waits half a second for a statement, and the way that its statements go. */
async function impatientSetting(handler: Handler, options: Partial<ConsumerOptions>, max = 1) {
  const scope = new AsyncDisposableStack()
  const database = scope.use(await createTestDatabase())
  await createEffects(database.db)
  await database.db.raw('create table notes (n int)')
  const proxy = scope.use(await createPostgresProxy(database.url))
  const connection = { connectionString: proxy.url, query_timeout: 500 }
  const pool = database.createPool({ connection: connection as Knex.PgConnectionConfig, pool: { min: 0, max } })
  const { logger, lines } = keepLog('consumer')
  const setting = scope.use(joinOn(database, handler, { db: pool, logger, ...options }))
  return { ...setting, proxy, pool, lines, [Symbol.asyncDispose]: () => scope.disposeAsync() }
}

/** From a statement that begins with `text` on nothing comes from the database, on no connection, until the consumer has asked in vain. */
async function silentFrom(text: string, { proxy, lines }: Awaited<ReturnType<typeof impatientSetting>>): Promise<void> {
  const asked = () => lines.filter(({ msg }) => msg === 'Could not end the backend of a handler').length
  const before = asked()
  await proxy.meet(text, 'answer held')
  proxy.refuseConnections(true)
  await eventually('it has asked in vain', () => asked() > before)
  proxy.refuseConnections(false)
  proxy.release()
}

async function backendOf(trx: Knex.Transaction): Promise<number> {
  const { rows } = await trx.raw<{ rows: [{ pid: number }] }>('select pg_backend_pid() as pid')
  return rows[0].pid
}

/** Resolves once the backend has ended, as another session sees it. */
async function untilEnded(db: Knex, pid: number): Promise<void> {
  await eventually('the end of the backend', async () => {
    const { rows } = await db.raw<{ rows: unknown[] }>('select from pg_stat_activity where pid = ?', [pid])
    return rows.length === 0
  })
}
