/** Why an append locks first. */
import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { untilLockWait } from '../../support/sessions.ts'

test('two transactions on one aggregate commit in the order in which they appended (D5, F7)', async () => {
  await using database = await createTestDatabase()
  const appended = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  const commits: string[] = []
  const transaction = (type: string, rest: () => Promise<void>) =>
    inTransaction(database.db, async (trx) => {
      await appendToOutbox(trx, [orderEvent(type, 'order-1')])
      await rest()
    }).then(() => commits.push(type))

  const first = transaction('First', async () => {
    appended.resolve()
    await goOn.promise
  })
  await appended.promise
  const second = transaction('Second', async () => {})
  await Promise.race([second, untilLockWait(database.db)])
  goOn.resolve()
  await Promise.all([first, second])

  expect(await database.db('outbox').orderBy('seq').pluck('event_type')).toEqual(['First', 'Second'])
  expect(commits).toEqual(['First', 'Second'])
})
