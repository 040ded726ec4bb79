import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { processOnce } from '../../../src/messaging/inbox/process-once.ts'
import { markProcessed, markSkipped, selectOffset, storeOffset } from '../../../src/messaging/inbox/queries.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { untilLockWait } from '../../support/sessions.ts'
import { createEffects, effectsOf } from '../consumer/setting.ts'

const apply = async (trx: Knex.Transaction, event: { readonly id: string }) => {
  await trx('effects').insert({ event_id: event.id, aggregate_id: 'a' })
}

test('runs the handler the first time, and never again for the same consumer', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const event = { id: uuidv7() }

  const outcomes = []
  for (const consumer of ['one', 'one', 'two', 'two']) {
    outcomes.push(await db.transaction((trx) => processOnce(trx, consumer, event, apply)))
  }

  expect(outcomes).toEqual(['processed', 'duplicate', 'processed', 'duplicate'])
  expect(await effectsOf(db)).toEqual([event.id, event.id])
})

test('an event is marked in a transaction or not at all: the mark would stand without its effect', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const outside = processOnce(db as Knex.Transaction, 'one', { id: uuidv7() }, apply)

  await expect(outside).rejects.toMatchObject({ code: 'MESSAGING_NOT_IN_TRANSACTION' })
  await expect(outside).rejects.toThrow('processOnce needs a live transaction: it was given a plain Knex handle')
  expect(await effectsOf(db)).toEqual([])
})

test('an event is not marked beside an open savepoint, with which the mark could be undone and the effect stand', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const event = { id: uuidv7() }

  const beside = db.transaction(async (trx) => {
    const optional = inTransaction(trx, async (savepoint) => {
      await savepoint.raw('select 1')
      throw new Error('optional')
    }).catch(() => {})
    await Promise.all([optional, processOnce(trx, 'one', event, apply)])
  })

  await expect(beside).rejects.toThrow('processOnce needs a live transaction: a savepoint of it is open')
  expect(await effectsOf(db)).toEqual([])
})

test('a handler that rejects leaves neither effect nor memory', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const event = { id: uuidv7() }

  const failing = db.transaction((trx) =>
    processOnce(trx, 'one', event, async () => {
      await apply(trx, event)
      throw new Error('no')
    }),
  )
  await expect(failing).rejects.toThrow('no')
  const again = await db.transaction((trx) => processOnce(trx, 'one', event, apply))

  expect(again).toBe('processed')
  expect(await effectsOf(db)).toEqual([event.id])
})

test.each([
  ['rolls back', 'processed', 'read committed'],
  ['commits', 'duplicate', 'read committed'],
  ['rolls back', 'processed', 'repeatable read'],
] as const)(
  'PC-52: a second delivery waits for the first; when that %s it is %s (%s)',
  async (how, outcome, isolationLevel) => {
    await using database = await createTestDatabase()
    const { db } = database
    await createEffects(db)
    const event = { id: uuidv7() }
    const marked = Promise.withResolvers<void>()
    const end = Promise.withResolvers<void>()

    const first = db.transaction(async (trx) => {
      await processOnce(trx, 'one', event, apply)
      marked.resolve()
      await end.promise
      if (how === 'rolls back') throw new Error('rolled back')
    })
    await marked.promise
    const second = db.transaction((trx) => processOnce(trx, 'one', event, apply), { isolationLevel })
    const early = await Promise.race([second.then(() => 'ended'), untilLockWait(db).then(() => 'waits')])
    end.resolve()
    await first.catch(() => {})

    expect(early).toBe('waits')
    expect(await second).toBe(outcome)
    expect(await effectsOf(db)).toEqual([event.id])
  },
)

test('PC-51: batches that mark the same events in another order do not deadlock', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  // Slow enough for each to meet the others in the middle.
  await db.raw(`
    create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.005); return new; end $$;
    create trigger dawdle before insert on processed_events for each row execute function dawdle()`)
  const ids = Array.from({ length: 40 }, () => uuidv7())
  const begun = Array.from({ length: 4 }, () => Promise.withResolvers<void>())

  const rounds = await Promise.all(
    begun.map(({ resolve }, at) =>
      db.transaction(async (trx) => {
        resolve()
        await Promise.all(begun.map(({ promise }) => promise))
        return (await markProcessed(trx, 'one', at % 2 === 0 ? ids : ids.toReversed())).size
      }),
    ),
  )

  expect(rounds.reduce((sum, size) => sum + size, 0)).toBe(40)
})

test('an event is either processed or skipped, never both', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const id = uuidv7()

  expect(await db.transaction((trx) => markSkipped(trx, 'one', id))).toBe(true)
  expect((await db.transaction((trx) => markProcessed(trx, 'one', [id]))).size).toBe(0)
  expect(await db.transaction((trx) => markSkipped(trx, 'one', id))).toBe(false)
})

test('a stored offset is kept per consumer, topic and partition, and is lowered where the topic was made anew', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const where = { topic: 't', partition: 1 }
  const large = 9_007_199_254_740_993n
  await storeOffset(db, 'one', where, { known: null, nextOffset: large, isAnew: false })
  await storeOffset(db, 'two', where, { known: null, nextOffset: 5n, isAnew: false })
  const high = await selectOffset(db, 'one', where)
  await storeOffset(db, 'one', where, { known: large, nextOffset: 3n, isAnew: true })

  expect(high).toBe(large)
  expect(await selectOffset(db, 'one', where)).toBe(3n)
  expect(await selectOffset(db, 'two', where)).toBe(5n)
  expect(await selectOffset(db, 'one', { topic: 't', partition: 2 })).toBeNull()
})

test('a redelivery lowers no stored offset', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const where = { topic: 't', partition: 1 }
  await storeOffset(db, 'one', where, { known: null, nextOffset: 10n, isAnew: false })

  expect(await storeOffset(db, 'one', where, { known: 10n, nextOffset: 3n, isAnew: false })).toBe(true)
  expect(await selectOffset(db, 'one', where)).toBe(10n)
})

test('an offset that another member has stored meanwhile is not lowered by who knew a lower one', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const where = { topic: 't', partition: 1 }
  await storeOffset(db, 'one', where, { known: null, nextOffset: 10n, isAnew: false })
  await storeOffset(db, 'one', where, { known: 10n, nextOffset: 20n, isAnew: false })

  expect(await storeOffset(db, 'one', where, { known: 10n, nextOffset: 15n, isAnew: true })).toBe(true)
  expect(await selectOffset(db, 'one', where)).toBe(20n)
})

test('no offset is stored upon one that is lower than is known, nor upon none', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const where = { topic: 't', partition: 1 }

  expect(await storeOffset(db, 'one', where, { known: 5n, nextOffset: 6n, isAnew: false })).toBe(false)
  expect(await selectOffset(db, 'one', where)).toBeNull()
  await storeOffset(db, 'one', where, { known: null, nextOffset: 5n, isAnew: false })
  expect(await storeOffset(db, 'one', where, { known: 10n, nextOffset: 11n, isAnew: false })).toBe(false)
  expect(await selectOffset(db, 'one', where)).toBe(5n)
})
