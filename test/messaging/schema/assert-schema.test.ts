/** The library starts only on a schema that it can work with, and says how to mend another. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { listDeadLetters, listHeldKeys, readDeadLetter } from '../../../src/messaging/dead-letters/list.ts'
import { requestResume } from '../../../src/messaging/dead-letters/requests.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { assertSchema } from '../../../src/messaging/schema/assert-schema.ts'
import { migrateDown } from '../../../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../../../src/messaging/schema/migration-files.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

test('accepts the schema of this release', async () => {
  await using database = await createTestDatabase()

  await assertSchema(database.db)
})

test('names the command on a database without an outbox', async () => {
  await using database = await createTestDatabase({ empty: true })

  const call = assertSchema(database.db)

  await expect(call).rejects.toMatchObject({ code: 'MESSAGING_SCHEMA_MISMATCH' })
  await expect(call).rejects.toThrow("run: await migrate(db, messagingMigrations, 'messaging')")
})

test.each<[string, (db: Knex) => Promise<unknown>]>([
  ['an append', (db) => inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced')]))],
  ['a list of held keys', (db) => listHeldKeys(db)],
  ['a list of dead letters', (db) => listDeadLetters(db)],
  ['a look at one', (db) => readDeadLetter(db, 1n)],
  ['a request', (db) => requestResume(db, { holder: 'relay', topic: 't', aggregateType: 'order', aggregateId: 'o' })],
])('%s names the command as well, and not the statement that has failed', async (_, call) => {
  await using database = await createTestDatabase({ empty: true })

  await expect(call(database.db)).rejects.toMatchObject({
    code: 'MESSAGING_SCHEMA_MISMATCH',
    message: "The database has no outbox in its search path; run: await migrate(db, messagingMigrations, 'messaging')",
  })
})

test('names the command on an older schema', async () => {
  await using database = await createTestDatabase()
  await migrateDown(database.db, messagingMigrations, 'messaging')

  await expect(assertSchema(database.db)).rejects.toThrow(/is at migration 0 of the \d+ .*run: await migrate/)
})

test('accepts a newer schema that works with this release, and refuses one that does not', async () => {
  await using database = await createTestDatabase()
  const add = (version: number, compatible_from: number) =>
    database.db('schema_version').insert({ component: 'messaging', version, compatible_from })

  await add(900, 1)
  await assertSchema(database.db)
  await add(901, 900)

  await expect(assertSchema(database.db)).rejects.toThrow('This release is too old for the database')
})

test('looks where the search path leads', async () => {
  await using database = await createTestDatabase()
  await database.db.raw('create schema elsewhere')

  await expect(assertSchema(database.createPool({ searchPath: 'elsewhere' }))).rejects.toMatchObject({
    code: 'MESSAGING_SCHEMA_MISMATCH',
  })
})
