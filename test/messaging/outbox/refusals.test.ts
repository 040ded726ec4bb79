/** What appendToOutbox refuses: events that cannot be stored as they are, and calls outside a transaction. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { rawJson } from '../../../src/messaging/envelope.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { MAX_LOCKED_AGGREGATES } from '../../../src/messaging/outbox/enlistment.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

test('stores none of several events when one is refused, even if the refusal is swallowed', async () => {
  await using database = await createTestDatabase()
  const events = [orderEvent('OrderPlaced'), orderEvent('OrderPlaced', 'o-1', { payload: { total: Number.NaN } })]

  const refused = await inTransaction(database.db, async (trx) => {
    return await appendToOutbox(trx, events).catch((error: unknown) => error)
  })

  expect(refused).toMatchObject({ code: 'MESSAGING_INVALID_EVENT', field: 'payload', index: 1 })
  expect(await countOf(database.db)).toBe(0)
})

test('refuses a field that no event has: a misspelt one would be missing in silence', async () => {
  await using database = await createTestDatabase()
  const misspelt = { ...orderEvent('OrderPlaced'), verison: 3 }

  const refused = inTransaction(database.db, (trx) => appendToOutbox(trx, [misspelt]))

  await expect(refused).rejects.toMatchObject({ code: 'MESSAGING_INVALID_EVENT', field: 'verison', index: 0 })
  await expect(refused).rejects.toThrow('is not a field of an event; those are type, aggregate, version')
})

test('refuses an event that is larger as stored than allowed, and stores none of the others', async () => {
  await using database = await createTestDatabase()
  const events = [orderEvent('OrderPlaced'), orderEvent('OrderPlaced', 'o-2', { payload: { text: 'x'.repeat(2_000) } })]

  const refused = await inTransaction(database.db, async (trx) => {
    return await appendToOutbox(trx, events, { maxEventBytes: 1_000 }).catch((error: unknown) => error)
  })

  expect(refused).toMatchObject({ code: 'MESSAGING_INVALID_EVENT', field: 'payload', index: 1 })
  expect(String(refused)).toMatch(/has 2014 bytes with its headers, as stored; maxEventBytes allows 1000/)
  expect(await countOf(database.db)).toBe(0)
})

test('measures what is stored and not what was given: jsonb writes numbers out', async () => {
  await using database = await createTestDatabase()
  const event = orderEvent('OrderPlaced', 'o-1', { payload: rawJson('1e3000') })

  const refused = inTransaction(database.db, (trx) => appendToOutbox(trx, [event], { maxEventBytes: 1_000 }))

  await expect(refused).rejects.toMatchObject({ code: 'MESSAGING_INVALID_EVENT' })
})

test('stores an event of exactly the allowed size', async () => {
  await using database = await createTestDatabase()
  const event = orderEvent('OrderPlaced', 'o-1', { payload: 'x'.repeat(996) })

  await inTransaction(database.db, (trx) => appendToOutbox(trx, [event], { maxEventBytes: 1_000 }))

  expect(await countOf(database.db)).toBe(1)
})

test.each([{ locked: false }, { locked: true }])(
  'says that an error was swallowed before it, and nothing of its own statement: %j (D1)',
  async (options) => {
    await using database = await createTestDatabase()

    const appending = inTransaction(database.db, async (trx) => {
      await trx.raw('select 1 / 0').catch(() => {})
      await appendToOutbox(trx, [orderEvent('OrderPlaced')], options)
    })

    await expect(appending).rejects.toMatchObject({
      code: 'MESSAGING_ROLLED_BACK',
      message: 'The transaction was rolled back: one of its statements had failed and the error was swallowed',
    })
  },
)

test('refuses an event that is not in a list, with the word for it', async () => {
  await using database = await createTestDatabase()

  // @ts-expect-error the types refuse it as well
  const call = inTransaction(database.db, (trx) => appendToOutbox(trx, orderEvent('OrderPlaced')))

  await expect(call).rejects.toMatchObject({
    code: 'MESSAGING_INVALID_OPTION',
    message: 'Option events must be a list, also of one event; it is an object',
  })
})

test('refuses a plain handle (PC-39)', async () => {
  await using database = await createTestDatabase()

  // @ts-expect-error the types refuse it as well
  const call = appendToOutbox(database.db, [orderEvent('OrderPlaced')])

  await expect(call).rejects.toMatchObject({ code: 'MESSAGING_NOT_IN_TRANSACTION' })
})

test('refuses a call after the callback has returned (PC-39)', async () => {
  await using database = await createTestDatabase()
  const trx = await inTransaction(database.db, async (trx) => ({ trx })).then(({ trx }) => trx)

  const call = appendToOutbox(trx, [orderEvent('OrderPlaced')])

  await expect(call).rejects.toMatchObject({ code: 'MESSAGING_NOT_IN_TRANSACTION' })
  expect(await countOf(database.db)).toBe(0)
})

test('rolls back when an append was not awaited (PC-39)', async () => {
  await using database = await createTestDatabase()
  let forgotten: Promise<unknown> = Promise.resolve()

  const transaction = inTransaction(database.db, async (trx) => {
    await trx('outbox').count()
    forgotten = appendToOutbox(trx, [orderEvent('OrderPlaced')])
  })

  await expect(transaction).rejects.toMatchObject({ code: 'MESSAGING_NOT_IN_TRANSACTION' })
  await expect(forgotten).rejects.toThrow()
  expect(await countOf(database.db)).toBe(0)
})

test('an append that nobody awaited does not end the process: its transaction says what was wrong', async () => {
  await using database = await createTestDatabase()
  const program = new URL('fixtures/forgotten-append.ts', import.meta.url)

  const { stdout } = await promisify(execFile)(process.execPath, [program.pathname, database.url])

  expect(stdout).toBe('MESSAGING_NOT_IN_TRANSACTION\n')
})

test('takes the events of a savepoint along when it rolls back, and no others (PC-39)', async () => {
  await using database = await createTestDatabase()

  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('OrderPlaced')])
    const failing = trx.transaction(async (savepoint) => {
      await appendToOutbox(savepoint, [orderEvent('OrderCancelled')])
      throw new Error('back to the savepoint')
    })
    await failing.catch(() => {})
    await inTransaction(trx, (savepoint) => appendToOutbox(savepoint, [orderEvent('OrderShipped')]))
  })

  const types = await database.db('outbox').orderBy('seq').pluck('event_type')
  expect(types).toEqual(['OrderPlaced', 'OrderShipped'])
})

test('refuses to lock more aggregates than the lock table has room for, over several calls', async () => {
  await using database = await createTestDatabase()
  const events = Array.from({ length: MAX_LOCKED_AGGREGATES }, (_, index) => orderEvent('OrderPlaced', `o-${index}`))

  const transaction = inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, events)
    await appendToOutbox(trx, events.slice(0, 1))
    await appendToOutbox(trx, [orderEvent('OrderPlaced', 'one more')])
  })

  await expect(transaction).rejects.toMatchObject({ code: 'MESSAGING_INVALID_EVENT', field: 'aggregate' })
  await expect(transaction).rejects.toThrow('1000 aggregates')
})

test('refuses to mix the two kinds of lock for one aggregate type', async () => {
  await using database = await createTestDatabase()
  await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced')], { locked: true }))

  const mixing = inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('OrderShipped')]))

  await expect(mixing).rejects.toMatchObject({ code: 'MESSAGING_INVALID_OPTION', option: 'locked' })
})

test.each([
  ['maxEventBytes', { maxEventBytes: 0 }],
  ['locked', { locked: 'yes' as unknown as boolean }],
])('names an option that it cannot use: %s', async (option, options) => {
  await using database = await createTestDatabase()

  const call = inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced')], options))

  await expect(call).rejects.toMatchObject({ code: 'MESSAGING_INVALID_OPTION', option })
})

async function countOf(db: Knex): Promise<number> {
  const [row] = await db('outbox').count({ count: '*' })
  return Number(row?.count)
}
