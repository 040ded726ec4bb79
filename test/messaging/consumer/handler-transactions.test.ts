/** What a handler can do to the transaction that it shares with our memory of the event, and with other events. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { processOnce } from '../../../src/messaging/inbox/process-once.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createEffects, createSetting, effectsOf, idOf, joinOn, writeEffect } from './setting.ts'

const NOBODY = '01a22d02-357a-71c0-add4-7e16800a798d'

/** One that fails, begun in the handler's transaction; the handler is glad without it. */
async function optional(trx: Knex.Transaction): Promise<void> {
  await inTransaction(trx, async (savepoint) => {
    await savepoint.raw('select pg_sleep(0.05)')
    throw new Error('optional')
  }).catch(() => {})
}

test.each<[string, (trx: Knex.Transaction) => unknown]>([
  [
    'appends beside a savepoint that may be undone',
    async (trx) => {
      await Promise.all([optional(trx), appendToOutbox(trx, [orderEvent('OrderPlaced', 'needed')])])
    },
  ],
  ['leaves a savepoint open behind it', (trx) => void optional(trx)],
  [
    'leaves an append running behind it',
    (trx) => {
      void appendToOutbox(trx, [orderEvent('OrderPlaced', 'needed')]).catch(() => {})
    },
  ],
  ['commits by hand', (trx) => trx.commit()],
  ['rolls back by hand', (trx) => trx.rollback()],
  [
    'swallows that it may not roll back',
    async (trx) => {
      await writeEffect(trx, { id: NOBODY, aggregate: { id: 'a' } } as never)
      await Promise.resolve()
        .then(() => trx.rollback())
        .catch(() => {})
    },
  ],
  ['awaits no inTransaction', (trx) => void inTransaction(trx, async (savepoint) => await savepoint.raw('select 1'))],
  ['awaits no processOnce', (trx) => void processOnce(trx, 'other', { id: NOBODY }, async () => {})],
  ['rolls back by SQL', (trx) => trx.raw('rollback')],
])('a handler that %s parks its key, and the events beside it have their effects', async (_how, work) => {
  const [bad, ...others] = [recordOf(0, { key: 'a' }), recordOf(1, { key: 'b' }), recordOf(2, { key: 'c' })]
  await using setting = await createSetting(
    async (trx, event) => {
      if (event.aggregate.id === 'a') await work(trx)
      else await writeEffect(trx, event)
    },
    { maxAttempts: 2 },
  )

  await setting.subscriber.deliverAll([bad, ...others])

  expect(await setting.effects()).toEqual(others.map(idOf))
  expect(await setting.db('outbox').select('aggregate_type').where('aggregate_id', 'needed')).toEqual([])
  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', aggregateId: 'a', reason: expect.stringContaining('MESSAGING_NOT_IN_TRANSACTION') },
  ])
})

test('an attempt whose ROLLBACK waits too long leaves its connection to nobody, behind whose statement the next would wait', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const pool = database.createPool({ pool: { min: 0, max: 1 } })
  const backends: number[] = []
  await using setting = joinOn(
    database,
    async (trx, event) => {
      const { rows } = await trx.raw<{ rows: [{ pid: number }] }>('select pg_backend_pid() as pid')
      backends.push(rows[0].pid)
      await writeEffect(trx, event)
      // Knex gives up a ROLLBACK after five seconds.
      if (backends.length === 1) await Promise.all([trx.raw('select pg_sleep(7)'), Promise.reject(new Error('no'))])
    },
    { db: pool },
  )
  const record = recordOf(0)

  await setting.subscriber.deliverAll([record])

  expect(await effectsOf(database.db)).toEqual([idOf(record)])
  expect(new Set(backends).size).toBe(2)
})

test('an event whose COMMIT was answered by ROLLBACK, as what its handler left running had failed, is not taken for processed', async () => {
  await using setting = await createSetting(
    async (trx, event) => {
      await writeEffect(trx, event)
      // The second is sent behind our own last statement.
      const left = async () => {
        await trx.raw('select 1')
        await trx.raw('select 1 / 0')
      }
      void left().catch(() => {})
    },
    { maxAttempts: 1 },
  )

  await setting.subscriber.deliverAll([recordOf(0)])

  expect(await setting.effects()).toEqual([])
  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', reason: expect.stringContaining('MESSAGING_ROLLED_BACK') },
  ])
})
