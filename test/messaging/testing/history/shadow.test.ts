import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../../src/messaging/outbox/transaction.ts'
import { installShadow, readShadow, shadowsFromTheStart } from '../../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../../support/database.ts'
import { orderEvent } from '../../../support/events.ts'

const reading = { topicFor: (type: string) => `${type}.events` }

test('knows that it has every event when it was there before the first', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await installShadow(db)
  await inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'a', { version: 1 })]))
  await installShadow(db)

  expect(await shadowsFromTheStart(db)).toBe(true)
  expect(await readShadow(db, reading)).toMatchObject([{ aggregateId: 'a', version: 1, type: 'OrderPlaced' }])
})

test('knows that it came later, also where nothing of before is left', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'a', { version: 1 })]))
  await db('outbox').delete()
  await installShadow(db)
  await inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderShipped', 'a', { version: 2 })]))

  expect(await shadowsFromTheStart(db)).toBe(false)
  expect(await readShadow(db, reading)).toMatchObject([{ version: 2 }])
})
