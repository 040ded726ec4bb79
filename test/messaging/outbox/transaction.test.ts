/** The truth about a transaction's end: committed, rolled back, or unknown. */
import { once } from 'node:events'
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { type Committed, onCommitted } from '../../../src/messaging/outbox/committed.ts'
import { laneOf, murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'
import { untilLockWait } from '../../support/sessions.ts'

const appendOne = (trx: Knex.Transaction) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'o-1')])
const swallow = (work: Promise<unknown>) => work.then(() => {}).catch(() => {})

async function countOf(db: Knex): Promise<number> {
  const [row] = await db('outbox').count({ count: '*' })
  return Number(row?.count)
}

test('resolves to what the callback resolves to, after the commit', async () => {
  await using database = await createTestDatabase()

  const result = await inTransaction(database.db, async (trx) => {
    await appendOne(trx)
    return 'done'
  })

  expect([result, await countOf(database.db)]).toEqual(['done', 1])
})

test('rejects with what the callback rejects with, and stores nothing', async () => {
  await using database = await createTestDatabase()

  const failing = inTransaction(database.db, async (trx) => {
    await appendOne(trx)
    throw new Error('refused')
  })

  await expect(failing).rejects.toThrow('refused')
  expect(await countOf(database.db)).toBe(0)
})

test.each([
  ['after an append', appendOne],
  ['before it has written anything', async () => {}],
])('reports a rollback when a failed statement was swallowed, where Knex would not: %s (D1)', async (_, before) => {
  await using database = await createTestDatabase()
  const pool = database.createPool({ pool: { min: 0, max: 1 } })
  const swallowing = () =>
    inTransaction(pool, async (trx) => {
      await before(trx)
      await swallow(trx.raw('select 1 / 0'))
    })

  // On a new connection and on one that is known.
  await expect(swallowing()).rejects.toMatchObject({ code: 'MESSAGING_ROLLED_BACK' })
  await inTransaction(pool, appendOne)
  await expect(swallowing()).rejects.toThrow('one of its statements had failed')

  expect(await countOf(database.db)).toBe(1)
})

test('commits when the failed statement had a savepoint of its own (D1)', async () => {
  await using database = await createTestDatabase()

  await inTransaction(database.db, async (trx) => {
    await appendOne(trx)
    await swallow(trx.transaction((savepoint) => savepoint.raw('select 1 / 0')))
  })

  expect(await countOf(database.db)).toBe(1)
})

test('reports a rollback when the callback rejects with nothing', async () => {
  await using database = await createTestDatabase()

  const failing = inTransaction(database.db, async (trx) => {
    await appendOne(trx)
    await Promise.reject(undefined)
  })

  await expect(failing).rejects.toMatchObject({ code: 'MESSAGING_ROLLED_BACK' })
  expect(await countOf(database.db)).toBe(0)
})

test.each(['commit', 'rollback'] as const)(
  'refuses a %s by hand, after which nobody could tell the outcome (D2)',
  async (end) => {
    await using database = await createTestDatabase()

    const ending = inTransaction(database.db, async (trx) => {
      await appendOne(trx)
      await trx[end]()
    })

    await expect(ending).rejects.toMatchObject({ code: 'MESSAGING_NOT_IN_TRANSACTION' })
    expect(await countOf(database.db)).toBe(0)
  },
)

test.each(['commit', 'rollback'])(
  'a transaction that one of its statements has ended is not reported as committed: %s',
  async (statement) => {
    await using database = await createTestDatabase()
    const told: Committed[] = []
    using _subscription = onCommitted((message) => told.push(message))

    const ended = inTransaction(database.db, async (trx) => {
      await appendOne(trx)
      await trx.raw(statement)
    })

    await expect(ended).rejects.toThrow('one of its statements has ended it')
    expect(told).toEqual([])
  },
)

test('rejects, stores nothing and goes on when the backend is killed in the middle (D2, F3)', async () => {
  await using database = await createTestDatabase()
  const pool = database.createPool({ pool: { min: 0, max: 1 } })

  const killed = inTransaction(pool, async (trx) => {
    const { rows } = await trx.raw('select pg_backend_pid() as pid')
    await appendOne(trx)
    await database.db.raw('select pg_terminate_backend(?)', [rows[0].pid])
    await trx.raw('select 1')
  })

  await expect(killed).rejects.toThrow()
  expect(await countOf(database.db)).toBe(0)
  await inTransaction(pool, appendOne)
  expect(await countOf(database.db)).toBe(1)
})

test('rejects, stores nothing when the backend is killed between the last statement and COMMIT (D2, F3)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const lost = proxy.meet('COMMIT', 'request lost')

  const cut = inTransaction(pool, appendOne)

  await expect(cut).rejects.toMatchObject({ code: 'MESSAGING_ROLLED_BACK' })
  await lost
  expect(await countOf(database.db)).toBe(0)
})

test('rejects with why it could not begin, calls nobody, and goes on (F3)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const lost = proxy.meet('BEGIN', 'request lost')
  let calls = 0

  const unbegun = inTransaction(pool, async () => {
    calls += 1
  })

  await expect(unbegun).rejects.toThrow('Connection terminated unexpectedly')
  await lost
  expect(calls).toBe(0)
  await inTransaction(pool, appendOne)
  expect(await countOf(database.db)).toBe(1)
})

test('rejects with the constraint that fails at COMMIT (D4)', async () => {
  await using database = await createTestDatabase()
  await database.db.raw('create table once (n integer unique deferrable initially deferred)')

  const failing = inTransaction(database.db, async (trx) => {
    await appendOne(trx)
    await trx.raw('insert into once values (1), (1)')
  })

  await expect(failing).rejects.toMatchObject({ code: '23505' })
  expect(await countOf(database.db)).toBe(0)
})

test('rejects when the server has given up an idle transaction (D4)', async () => {
  await using database = await createTestDatabase()
  let sawEnd: Promise<unknown> = Promise.resolve()

  const idle = inTransaction(database.db, async (trx) => {
    await appendOne(trx)
    sawEnd = once(await trx.client.acquireConnection(), 'end')
    await trx.raw("set local idle_in_transaction_session_timeout = '50ms'")
    await sawEnd
  })

  await expect(idle).rejects.toThrow()
  expect(await countOf(database.db)).toBe(0)
})

test('finds out that it committed when the answer to COMMIT is lost, and announces it (D3, F2)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const told: Committed[] = []
  using _subscription = onCommitted((message) => told.push(message))
  const lost = proxy.meet('COMMIT', 'answer lost')

  const result = await inTransaction(pool, async (trx) => {
    await appendOne(trx)
    return 'done'
  })

  await lost
  expect([result, await countOf(database.db)]).toEqual(['done', 1])
  expect(told).toEqual([{ lanes: [laneOf(murmur2('o-1'))] }])
})

test('says that the commit is unknown when nobody can be asked (D3, F2)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const told: Committed[] = []
  using _subscription = onCommitted((message) => told.push(message))
  const lost = proxy.meet('COMMIT', 'answer lost').then(() => proxy.refuseConnections(true))

  const unknown = inTransaction(pool, appendOne, { retries: 5 })

  await expect(unknown).rejects.toMatchObject({ code: 'MESSAGING_COMMIT_UNKNOWN' })
  await lost
  expect(told).toEqual([])
  expect(await countOf(database.db)).toBe(1)
})

test('says that the commit is unknown while the server still has the transaction open (D3, F2)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const cut = proxy.meet('COMMIT', 'client cut off')

  const unknown = inTransaction(pool, appendOne)

  await expect(unknown).rejects.toMatchObject({ code: 'MESSAGING_COMMIT_UNKNOWN' })
  await cut
})

test('asks nothing about a lost commit that had written nothing (D3)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const lost = proxy.meet('COMMIT', 'answer lost').then(() => proxy.refuseConnections(true))

  const result = await inTransaction(pool, async (trx) => await trx('outbox').pluck('id'))

  await lost
  expect(result).toEqual([])
})

test('reports a serialization failure, and repeats it only when told to (F8)', async () => {
  await using database = await createTestDatabase()
  await database.db.raw('create table counter as select 1 as id, 0 as n')
  const disturb = async (options: { retries?: number }) => {
    let runs = 0
    const work = async (trx: Knex.Transaction) => {
      runs += 1
      await trx('counter').select('n')
      if (runs === 1) await database.db('counter').increment('n')
      await trx('counter').increment('n')
      await appendOne(trx)
    }
    await inTransaction(database.db, work, { isolation: 'repeatable read', ...options }).finally(() => {
      expect(runs).toBe((options.retries ?? 0) + 1)
    })
  }

  await expect(disturb({})).rejects.toMatchObject({ code: '40001' })
  await disturb({ retries: 1 })

  expect(await countOf(database.db)).toBe(1)
})

test('reports a deadlock to one of two, and both succeed when they may try again (F8)', async () => {
  await using database = await createTestDatabase()
  await database.db.raw('create table counter as select 1 as id, 0 as n union all select 2, 0')
  const met = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const crossing = (mine: number, other: number) =>
    inTransaction(
      database.db,
      async (trx) => {
        await trx('counter')
          .where({ id: mine + 1 })
          .increment('n')
        met[mine]?.resolve()
        await met[other]?.promise
        await trx('counter')
          .where({ id: other + 1 })
          .increment('n')
        await appendOne(trx)
      },
      { retries: 3 },
    )

  await Promise.all([crossing(0, 1), crossing(1, 0)])

  expect(await database.db('counter').pluck('n')).toEqual([2, 2])
  expect(await countOf(database.db)).toBe(2)
})

test('makes appends of one aggregate wait for each other, so that they commit in append order (D5, F7)', async () => {
  await using database = await createTestDatabase()
  const appended = Promise.withResolvers<void>()
  const release = Promise.withResolvers<void>()
  const order: string[] = []

  const first = inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('First', 'o-1')])
    appended.resolve()
    await release.promise
  }).then(() => order.push('first'))
  await appended.promise
  const second = inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('Second', 'o-1')])).then(() =>
    order.push('second'),
  )
  await untilLockWait(database.db)
  release.resolve()
  await Promise.all([first, second])

  expect(order).toEqual(['first', 'second'])
  expect(await database.db('outbox').orderBy('seq').pluck('event_type')).toEqual(['First', 'Second'])
})

test('lets other aggregates pass one that is locked, even the other way round (F7)', async () => {
  await using database = await createTestDatabase()
  const appended = Promise.withResolvers<void>()
  const release = Promise.withResolvers<void>()

  const late = inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('Late', 'o-1')])
    appended.resolve()
    await release.promise
  })
  await appended.promise
  await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('Early', 'o-2')]))

  expect(await database.db('outbox').pluck('event_type')).toEqual(['Early'])
  release.resolve()
  await late
})

test('never deadlocks appends that name the same aggregates in different order', async () => {
  await using database = await createTestDatabase()
  const ids = Array.from({ length: 50 }, (_, index) => `o-${index}`)
  const shuffled = (turn: number) => ids.map((id) => orderEvent('OrderPlaced', id)).toSorted(() => Math.sin(turn++))

  await Promise.all(
    Array.from({ length: 20 }, (_, turn) => inTransaction(database.db, (trx) => appendToOutbox(trx, shuffled(turn)))),
  )

  expect(await countOf(database.db)).toBe(1_000)
})

test('writes nothing when one of several concurrent statements fails (PC-45)', async () => {
  await using database = await createTestDatabase()
  const later = Promise.withResolvers<void>()
  let sibling: Promise<unknown> = Promise.resolve()

  const failing = inTransaction(database.db, async (trx) => {
    sibling = later.promise.then(() => appendOne(trx))
    sibling.catch(() => {})
    await Promise.all([appendOne(trx), sibling, trx.raw('select 1 / 0')])
  })

  await expect(failing).rejects.toMatchObject({ code: '22012' })
  later.resolve()
  await expect(sibling).rejects.toMatchObject({ code: 'MESSAGING_NOT_IN_TRANSACTION' })
  expect(await countOf(database.db)).toBe(0)
})

test('leaves a clean connection behind after a statement timeout (PC-44)', async () => {
  await using database = await createTestDatabase()
  const pool = database.createPool({ pool: { min: 0, max: 1 } })

  const timedOut = inTransaction(pool, async (trx) => {
    await trx.raw("set local statement_timeout = '20ms'")
    await trx.raw('select pg_sleep(10)')
  })

  await expect(timedOut).rejects.toMatchObject({ code: '57014' })
  await inTransaction(pool, appendOne)
  expect(await countOf(database.db)).toBe(1)
})

test('destroys a connection whose ROLLBACK is not answered, though somebody waits for it (PC-44)', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url, pool: { min: 0, max: 1 } })
  const held = proxy.meet('ROLLBACK', 'answer held')
  const backend = (trx: Knex.Transaction) => trx.raw('select pg_backend_pid() as pid').then(({ rows }) => rows[0].pid)
  let before = 0

  const failing = inTransaction(pool, async (trx) => {
    before = await backend(trx)
    throw new Error('refused')
  })
  await held
  const waiting = inTransaction(pool, backend)

  await expect(failing).rejects.toThrow('refused')
  expect(await waiting).not.toBe(before)
})

test('announces the lanes of a commit once, and those of a rollback never', async () => {
  await using database = await createTestDatabase()
  const told: Committed[] = []
  using _subscription = onCommitted((message) => told.push(message))
  const event = (id: string) => [orderEvent('OrderPlaced', id)]

  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, event('a'))
    await appendToOutbox(trx, event('a'))
    await swallow(inTransaction(trx, (savepoint) => appendToOutbox(savepoint, event('b'))))
    await swallow(
      inTransaction(trx, async (savepoint) => {
        await appendToOutbox(savepoint, event('c'))
        throw new Error('back to the savepoint')
      }),
    )
  })
  await swallow(
    inTransaction(database.db, async (trx) => {
      await appendToOutbox(trx, event('d'))
      throw new Error('roll back')
    }),
  )
  await inTransaction(database.db, async () => {})
  await database.db.transaction((trx) => appendToOutbox(trx, event('e')))

  const lanes = (...ids: string[]) => ({ lanes: ids.map((id) => laneOf(murmur2(id))) })
  expect(told).toEqual([lanes('a', 'b'), lanes('e')])
})

test('refuses a number of retries that it cannot use', async () => {
  await using database = await createTestDatabase()

  const call = inTransaction(database.db, appendOne, { retries: -1 })

  await expect(call).rejects.toMatchObject({ code: 'MESSAGING_INVALID_OPTION', option: 'retries' })
})
