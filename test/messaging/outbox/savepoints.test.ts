/** Events beside savepoints: what is undone with one is what was appended in it, and nothing else. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { type Committed, onCommitted } from '../../../src/messaging/outbox/committed.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

const append = (trx: Knex.Transaction, id: string) => appendToOutbox(trx, [orderEvent('OrderPlaced', id)])

/** A savepoint that does something and is rolled back. */
async function undone(trx: Knex, work: (savepoint: Knex.Transaction) => Promise<unknown> = async () => {}) {
  await inTransaction(trx, async (savepoint) => {
    await savepoint.raw('select 1')
    await work(savepoint)
    throw new Error('undone')
  }).catch((error: Error) => {
    if (error.message !== 'undone') throw error
  })
}

const stored = (db: Knex): Promise<string[]> => db('outbox').orderBy('seq').pluck('aggregate_id')

const besideSavepoint = {
  code: 'MESSAGING_NOT_IN_TRANSACTION',
  message: expect.stringContaining('a savepoint of it is open'),
}

test.each<[string, (trx: Knex.Transaction) => Promise<unknown>]>([
  ['opened beside it', (trx) => Promise.all([undone(trx), append(trx, 'lost')])],
  ['around the call', (trx) => undone(trx, () => append(trx, 'lost'))],
  ['opened by Knex itself', (trx) => Promise.all([trx.transaction(async () => {}), append(trx, 'lost')])],
  [
    'opened without a callback',
    async (trx) => {
      await trx.transaction()
      await append(trx, 'lost')
    },
  ],
  [
    'within a savepoint, and of nobody who appends',
    (trx) => inTransaction(trx, (one) => Promise.all([undone(one), append(one, 'lost')])),
  ],
])(
  'refuses an append of a transaction that has a savepoint open, as the event could be undone with it: %s',
  async (_, work) => {
    await using database = await createTestDatabase()
    const { db } = database

    await expect(
      inTransaction(db, async (trx) => {
        await append(trx, 'before')
        await work(trx)
      }),
    ).rejects.toMatchObject(besideSavepoint)
    expect(await stored(db)).toEqual([])
  },
)

test('refuses it in a transaction that Knex has begun as well', async () => {
  await using database = await createTestDatabase()
  const { db } = database

  await expect(
    db.transaction(async (trx) => {
      await append(trx, 'before')
      await Promise.all([undone(trx), append(trx, 'lost')])
    }),
  ).rejects.toMatchObject(besideSavepoint)
  expect(await stored(db)).toEqual([])
})

test.each<[string, (trx: Knex.Transaction) => Promise<unknown>]>([
  [
    'in the savepoint, and only then beside it',
    (trx) =>
      trx.transaction(async (savepoint) => {
        await append(savepoint, 'undone')
        await append(trx, 'lost')
      }),
  ],
  ['beside the savepoint', (trx) => Promise.all([undone(trx), append(trx, 'lost')])],
])('refuses it where such a transaction appends first %s', async (_, work) => {
  await using database = await createTestDatabase()
  const { db } = database

  await expect(db.transaction(work)).rejects.toMatchObject(besideSavepoint)
  expect(await stored(db)).toEqual([])
})

test("a savepoint that could not be opened is in nobody's way", async () => {
  await using database = await createTestDatabase()
  const { db } = database

  await inTransaction(db, async (trx) => {
    const options = { isolationLevel: 'none' as 'serializable' }
    expect(() => trx.transaction(async () => {}, options)).toThrow('Invalid isolationLevel')
    await append(trx, 'a')
  })

  expect(await stored(db)).toEqual(['a'])
})

test('opens a savepoint after the appends that were called before it, and undoes none of them', async () => {
  await using database = await createTestDatabase()
  const { db } = database

  await inTransaction(db, async (trx) => {
    await Promise.all([append(trx, 'a'), append(trx, 'b'), undone(trx, (savepoint) => append(savepoint, 'undone'))])
  })

  expect(await stored(db)).toEqual(['a', 'b'])
})

test('appends before, in and after savepoints that were awaited, of which one was undone', async () => {
  await using database = await createTestDatabase()
  const { db } = database

  await inTransaction(db, async (trx) => {
    await append(trx, 'a')
    await undone(trx, (savepoint) => append(savepoint, 'undone'))
    await append(trx, 'b')
    await inTransaction(trx, async (savepoint) => {
      await append(savepoint, 'c')
      await undone(savepoint)
      await append(savepoint, 'd')
    })
    const byHand = await trx.transaction()
    await append(byHand, 'e')
    await byHand.commit()
    await append(trx, 'f')
  })

  expect(await stored(db)).toEqual(['a', 'b', 'c', 'd', 'e', 'f'])
})

test('commits nothing of a transaction whose savepoint nobody has awaited', async () => {
  await using database = await createTestDatabase()
  const { db } = database

  const committed = inTransaction(db, async (trx) => {
    await append(trx, 'before')
    void inTransaction(trx, async (savepoint) => await append(savepoint, 'half')).catch(() => {})
  })

  await expect(committed).rejects.toThrow('a savepoint of it was still open when its callback returned')
  expect(await stored(db)).toEqual([])
})

test('a savepoint whose append nobody has awaited is undone and rejects, as a transaction is', async () => {
  await using database = await createTestDatabase()
  const { db } = database

  await inTransaction(db, async (trx) => {
    await append(trx, 'a')
    const inner = inTransaction(trx, async (savepoint) => {
      void append(savepoint, 'half')
    })
    await expect(inner).rejects.toThrow('it was still running when the callback of its transaction returned')
  })

  expect(await stored(db)).toEqual(['a'])
})

test.each<[string, (savepoint: Knex.Transaction) => unknown]>([
  ['a commit', (savepoint) => savepoint.commit()],
  ['a rollback', (savepoint) => savepoint.rollback()],
])('refuses %s by hand of a savepoint, after which its callback would speak for nothing', async (_, end) => {
  await using database = await createTestDatabase()
  const { db } = database

  await inTransaction(db, async (trx) => {
    const inner = inTransaction(trx, async (savepoint) => {
      await append(savepoint, 'undone')
      await end(savepoint)
    })
    await expect(inner).rejects.toThrow('its callback called commit or rollback')
    await append(trx, 'b')
  })

  expect(await stored(db)).toEqual(['b'])
})

test('a savepoint whose callback rejects with nothing at all was rolled back, and says so', async () => {
  await using database = await createTestDatabase()
  const { db } = database

  await inTransaction(db, async (trx) => {
    const inner = inTransaction(trx, async (savepoint) => {
      await append(savepoint, 'undone')
      throw undefined
    })
    await expect(inner).rejects.toMatchObject({ code: 'MESSAGING_ROLLED_BACK' })
  })

  expect(await stored(db)).toEqual([])
})

test('a savepoint takes a callback that returns no promise, as a transaction does', async () => {
  await using database = await createTestDatabase()
  const work = (() => 5) as unknown as () => Promise<number>

  const outcome = await inTransaction(database.db, async (trx) => [
    await inTransaction(trx, work),
    await trx('outbox').count(),
  ])

  expect(outcome).toEqual([5, [{ count: '0' }]])
})

test.each<[string, (db: Knex) => Promise<unknown>]>([
  [
    'a savepoint',
    (db) =>
      inTransaction(db, async (trx) => {
        const savepoint = await trx.transaction()
        await append(savepoint, 'undone')
        await savepoint.rollback()
      }),
  ],
  [
    'a transaction that Knex has begun',
    (db) =>
      db.transaction(async (trx) => {
        await append(trx, 'undone')
        await trx.rollback()
      }),
  ],
  [
    'a transaction of which a statement had failed and Knex calls committed',
    (db) =>
      db.transaction(async (trx) => {
        await append(trx, 'undone')
        await trx.raw('select 1 / 0').catch(() => {})
      }),
  ],
])('tells no relay of events that were rolled back without an error: %s', async (_, work) => {
  await using database = await createTestDatabase()
  const told: Committed[] = []
  using _subscription = onCommitted((message) => told.push(message))

  await work(database.db)
  await inTransaction(database.db, async (trx) => await append(trx, 'b'))

  expect(told).toHaveLength(1)
  expect(await stored(database.db)).toEqual(['b'])
})

test.each<[string, (trx: Knex.Transaction) => Promise<unknown>]>([
  [
    'by hand, before its callback fails',
    (trx) =>
      trx.transaction(async (savepoint) => {
        await append(savepoint, 'undone')
        const error = new Error('optional')
        await savepoint.rollback(error)
        throw error
      }),
  ],
  [
    'by its handle',
    async (trx) => {
      const savepoint = await trx.transaction()
      const undone = savepoint.executionPromise.catch(() => {})
      await append(savepoint, 'undone')
      await savepoint.rollback(new Error('optional'))
      await savepoint.rollback(new Error('the end'))
      await undone
    },
  ],
])('a savepoint that is rolled back twice takes nothing else with it: %s', async (_how, undoTwice) => {
  await using database = await createTestDatabase()

  await inTransaction(database.db, async (trx) => {
    await append(trx, 'a')
    await undoTwice(trx).catch(() => {})
    await append(trx, 'b')
  })

  expect(await stored(database.db)).toEqual(['a', 'b'])
})

test.each<[string, (trx: Knex.Transaction) => Promise<unknown>]>([
  ['as its transaction had failed', (trx) => trx.raw('select 1 / 0')],
  ['as its transaction has ended', (trx) => trx.commit()],
])('a savepoint that cannot begin calls nobody: %s', async (_why, end) => {
  await using database = await createTestDatabase()
  let calls = 0
  const work = async () => {
    calls += 1
  }

  const trx = await database.db.transaction()
  const over = trx.executionPromise.catch(() => {})
  await end(trx).catch(() => {})
  await expect(inTransaction(trx, work)).rejects.toThrow()
  if (!trx.isCompleted()) await trx.rollback()
  await over

  expect(calls).toBe(0)
})
