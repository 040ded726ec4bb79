/** What a handler can do to the transaction that it shares with our memory of the event, and with other events. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { orderEvent } from '../../support/events.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createSetting, idOf, writeEffect } from './setting.ts'

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
