import { randomBytes } from 'node:crypto'
import { expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import { defineHandlers, type Handler, type ReceivedEvent } from '../../../src/messaging/consumer/handlers.ts'
import { listDeadLetters, listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { markProcessed } from '../../../src/messaging/inbox/queries.ts'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { testPostgresUrl } from '../../support/postgres.ts'
import { untilLockWait } from '../../support/sessions.ts'
import { keepLog } from '../../support/telemetry/log-lines.ts'
import { recordOf, TOPIC } from './scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, type Setting, writeEffect } from './setting.ts'

/** A pool to another database of the same server. */
function adminPool(): Knex & AsyncDisposable {
  const pool = knex({ client: 'pg', connection: testPostgresUrl(), pool: { min: 0, max: 1 } })
  return Object.assign(pool, { [Symbol.asyncDispose]: () => pool.destroy() })
}

function refuse(): never {
  throw new Error('It cannot be looked at')
}

/** What the producer has written, to be quoted where it should not be. */
function noteOf({ payload }: ReceivedEvent): string {
  return (payload as { readonly note: string }).note
}

function unreadable(error: Error, name: string): Error {
  return Object.defineProperty(error, name, { get: refuse })
}

/** Another session that has an event in hand, until it lets it go and has done nothing. */
async function takenInHand({ database }: Setting, record: Parameters<typeof idOf>[0]) {
  const [held, freed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const other = database.createPool().transaction(async (trx) => {
    await markProcessed(trx, 'summary', [idOf(record)])
    held.resolve()
    await freed.promise
    await trx.rollback()
  })
  await held.promise
  return {
    async letGo() {
      freed.resolve()
      await other
    },
  }
}

async function backendOf(db: Knex): Promise<number> {
  const { rows } = await db.raw('select pg_backend_pid() as pid')
  return rows[0].pid
}

test.each([
  ['throws an Error', () => new Error('no')],
  ['throws a TypeError (K8)', () => new TypeError('no')],
  ['throws a RangeError (K8)', () => new RangeError('no')],
  ['throws a SyntaxError (K8)', () => new SyntaxError('no')],
  ['throws something that is no error', () => 'no'],
  ['throws nothing at all', () => undefined],
  ['throws an error whose code cannot be read', () => unreadable(new Error('no'), 'code')],
  ['throws an error whose stack cannot be read', () => unreadable(new Error('no'), 'stack')],
  ['throws an error whose name is no text', () => Object.assign(new Error('no'), { name: Symbol('no') })],
  ['throws an error behind a proxy', () => new Proxy(new Error('no'), { get: () => refuse() })],
  ['throws a proxy that hides what it is', () => new Proxy(new Error('no'), { getPrototypeOf: () => refuse() })],
])('F28: a handler that %s is tried again, then parked, and the consumer runs on', async (_how, thrown) => {
  const bad = recordOf(0)
  await using setting = await createSetting(async (trx, event) => {
    if (event.id === idOf(bad)) throw thrown()
    await writeEffect(trx, event)
  })

  await setting.subscriber.deliverAll([bad, recordOf(1)])

  expect(await listDeadLetters(setting.db)).toMatchObject([{ eventId: idOf(bad), attempts: 5 }])
  expect(await setting.effects()).toHaveLength(1)
})

test('F28: a handler that never returns loses its connection, and its backend has ended before the next attempt', async () => {
  const pids: number[] = []
  const alive: number[] = []
  await using setting = await createSetting(
    async (trx, event) => {
      const { rows } = await setting.db.raw('select pid from pg_stat_activity where pid = any(?)', [pids])
      alive.push(rows.length)
      pids.push(await backendOf(trx))
      await writeEffect(trx, event)
      if (pids.length === 1) await new Promise(() => {})
      if (pids.length === 2) await trx.raw('select pg_sleep(600)')
    },
    // On a busy machine a handler that is well may be cut off too: that is no reason to park.
    { handlerTimeoutMs: 1_000, maxAttempts: Number.POSITIVE_INFINITY },
  )
  const record = recordOf(0)

  await setting.subscriber.deliverAll([record, recordOf(1)])

  expect(new Set(pids).size).toBeGreaterThanOrEqual(3)
  expect(alive.slice(0, 3)).toEqual([0, 0, 0])
  expect(await setting.effects()).toHaveLength(2)
})

test('F28: what a timed-out handler does later has no effect, and says so', async () => {
  const late = Promise.withResolvers<void>()
  const ends: Promise<void>[] = []
  await using setting = await createSetting(
    (trx, event) => {
      const work = late.promise.then(() => writeEffect(trx, event))
      ends.push(work)
      return work
    },
    { handlerTimeoutMs: 50, maxAttempts: 1 },
  )

  await setting.subscriber.deliverAll([recordOf(0)])
  late.resolve()
  const outcomes = await Promise.allSettled(ends)

  expect(outcomes).toMatchObject([{ status: 'rejected' }])
  expect(await setting.effects()).toEqual([])
  expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', reason: 'HANDLER_TIMEOUT' }])
})

test('F29: while its database is away a consumer waits: no attempt is counted, nothing is parked, and it says so', async () => {
  await using setting = await createSetting(writeEffect, { maxAttempts: 1 })
  const records = [recordOf(0), recordOf(1)]
  await setting.subscriber.deliver(records.slice(0, 1))
  const { database } = setting
  await using admin = adminPool()
  const name = new URL(database.url).pathname.slice(1)

  await admin.raw('alter database ?? allow_connections false', [name])
  await admin.raw(
    'select pg_terminate_backend(pid) from pg_stat_activity where datname = ? and pid <> pg_backend_pid()',
    [name],
  )
  const outcomes = []
  for (let round = 0; round < 3; round++) outcomes.push(await setting.subscriber.deliver(records))
  const during = setting.consumer.status()
  await admin.raw('alter database ?? allow_connections true', [name])
  await setting.subscriber.deliverAll(records)

  expect(outcomes.map(({ nextOffset }) => nextOffset)).toEqual([0n, 0n, 0n])
  expect(outcomes.every(({ pauseMs }) => pauseMs > 0)).toBe(true)
  expect(during.ready).toBe(false)
  expect(during.problems.join()).toContain("order.events, partition 0: the consumer's database cannot be used (")
  expect(setting.consumer.status()).toMatchObject({ ready: true, problems: [] })
  expect(await setting.effects()).toEqual(records.map(idOf))
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test('PC-37: a backend that is terminated in the middle of a handler costs no attempt', async () => {
  let killed = false
  await using setting = await createSetting(
    async (trx, event) => {
      await writeEffect(trx, event)
      if (killed) return
      killed = true
      await setting.db.raw('select pg_terminate_backend(?)', [await backendOf(trx)])
      await writeEffect(trx, event)
    },
    { maxAttempts: 1 },
  )
  const records = [recordOf(0), recordOf(1)]

  await setting.subscriber.deliverAll(records)

  expect(await setting.effects()).toEqual(records.map(idOf))
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test("a connection error of another system that the handler talks to is the handler's, and counts", async () => {
  await using setting = await createSetting(
    async () => {
      throw Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })
    },
    { maxAttempts: 1 },
  )

  await setting.subscriber.deliverAll([recordOf(0)])

  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', reason: expect.stringMatching(/^ECONNREFUSED at consumer\/failures\.test\.ts:\d+:\d+$/) },
  ])
})

test('a constraint that is checked at COMMIT counts against the event', async () => {
  await using setting = await createSetting(writeEffect, { maxAttempts: 1 })
  await setting.db.raw('alter table effects add unique (aggregate_id) deferrable initially deferred')

  await setting.subscriber.deliverAll([recordOf(0, { key: 'a' })])
  await setting.subscriber.deliverAll([recordOf(1, { key: 'a' })])

  expect(await setting.effects()).toHaveLength(1)
  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', reason: expect.stringMatching(/^23505 \(table \w+, constraint \w+\)/) },
  ])
})

test('PC-49: a consumer that never parks recovers by itself, and its offset has not moved meanwhile', async () => {
  let failing = true
  await using setting = await createSetting(
    async (trx, event) => {
      if (failing) throw new Error('no')
      await writeEffect(trx, event)
    },
    { maxAttempts: Number.POSITIVE_INFINITY },
  )
  const records = [recordOf(0), recordOf(1)]

  for (let round = 0; round < 20; round++) {
    expect((await setting.subscriber.deliver(records)).nextOffset).toBe(0n)
  }
  const during = setting.consumer.status()
  failing = false
  await setting.subscriber.deliverAll(records)

  expect(during.ready).toBe(false)
  expect(await setting.subscriber.startOffset({ topic: TOPIC, partition: 0 })).toBe(2n)
  expect([...(await setting.effects())].sort()).toEqual(records.map(idOf).sort())
  expect(setting.consumer.status().ready).toBe(true)
})

test('PC-49: a subscription that ends by failing ends the consumer by failing', async () => {
  await using setting = await createSetting()
  const { consumer, subscriber } = await joinSetting(setting)

  subscriber.fail(new Error('authorization failed'))

  await expect(consumer.done).rejects.toThrow('authorization failed')
  await expect(consumer.stop()).rejects.toThrow('authorization failed')
})

test('PC-51: two members with the same events in opposite order lose none and double none', async () => {
  await using setting = await createSetting()
  await using other = await joinSetting(setting)
  const records = Array.from({ length: 100 }, (_, offset) => recordOf(offset))
  const reversed = records.toReversed().map((record, offset) => ({ ...record, offset: BigInt(offset) }))

  await Promise.all([setting.subscriber.deliverAll(records), other.subscriber.deliverAll(reversed)])

  expect([...(await setting.effects())].sort()).toEqual(records.map(idOf).sort())
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test.each(['rolls back', 'is killed'])(
  'PC-52: an event that another member has in hand waits for it, and is applied when that one %s',
  async (how) => {
    const inHand = Promise.withResolvers<number>()
    const end = Promise.withResolvers<void>()
    await using setting = await createSetting(
      async (trx, event) => {
        await writeEffect(trx, event)
        inHand.resolve(await backendOf(trx))
        await end.promise
        throw new Error('rolled back')
      },
      { maxAttempts: 100 },
    )
    await using other = await joinSetting(setting)
    const record = recordOf(0)

    const first = setting.subscriber.deliver([record])
    const pid = await inHand.promise
    const second = other.subscriber.deliver([record])
    await untilLockWait(setting.db)
    if (how === 'is killed') await setting.db.raw('select pg_terminate_backend(?)', [pid])
    end.resolve()
    await Promise.all([first, second])

    expect((await second).nextOffset).toBe(1n)
    expect(await setting.effects()).toEqual([idOf(record)])
  },
)

test('F27: a zombie that comes back after another member has processed its batch changes nothing', async () => {
  const awake = Promise.withResolvers<void>()
  const asleep = Promise.withResolvers<void>()
  await using zombie = await createSetting(async (trx, event) => {
    asleep.resolve()
    await awake.promise
    await writeEffect(trx, event)
  })
  await using successor = await joinSetting(zombie)
  const records = [recordOf(0), recordOf(1), recordOf(2)]

  // The zombie's first event is in its transaction, so the successor's waits for that one.
  const late = zombie.subscriber.deliver(records)
  await asleep.promise
  const ahead = successor.subscriber.deliverAll(records)
  awake.resolve()
  await Promise.all([late, ahead])
  await successor.subscriber.deliverAll([recordOf(3)])

  expect((await zombie.effects()).slice(0, 3)).toEqual(records.map(idOf))
  expect(await zombie.effects()).toHaveLength(4)
})

test('PC-78: a stop cuts a handler that does not end within the grace period, and nothing of it remains', async () => {
  const started = Promise.withResolvers<void>()
  await using setting = await createSetting(
    async (trx, event) => {
      await writeEffect(trx, event)
      started.resolve()
      await new Promise(() => {})
    },
    { graceMs: 50 },
  )

  const delivered = setting.subscriber.deliver([recordOf(0)])
  await started.promise
  await setting.consumer.stop()

  expect(await delivered).toEqual({ nextOffset: 0n, pauseMs: 0 })
  expect(await setting.effects()).toEqual([])
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test('PC-78: a stop ends within its grace though the database does not answer', async () => {
  await using setting = await createSetting(writeEffect, { graceMs: 50 })
  const looking = setting.database.createPool()
  const [locked, freed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const other = setting.database.createPool().transaction(async (trx) => {
    await trx.raw('lock table held_keys in access exclusive mode')
    locked.resolve()
    await freed.promise
  })
  await locked.promise
  // The consumer looks for requests each second.
  await untilLockWait(looking)

  await setting.consumer.stop()

  await untilLockWait(looking)
  freed.resolve()
  await other
})

test('PC-78: a stop cuts an event that waits for what another member has in hand, and nothing of it remains', async () => {
  await using setting = await createSetting(writeEffect, { graceMs: 50 })
  const { db, subscriber, consumer } = setting
  const record = recordOf(0)
  const other = await takenInHand(setting, record)

  const delivered = subscriber.deliver([record])
  await untilLockWait(db)
  await consumer.stop()

  expect(await delivered).toEqual({ nextOffset: 0n, pauseMs: 0 })
  await other.letGo()
  expect(await setting.effects()).toEqual([])
  expect(await db('processed_events')).toEqual([])
})

test('waiting for what another session has locked it is not ready and says so, and it recovers by itself', async () => {
  let aheadMs = 0
  const clock = { ...systemClock, now: () => systemClock.now() + aheadMs }
  await using setting = await createSetting(writeEffect, { clock })
  const { db, subscriber, consumer } = setting
  const record = recordOf(0)
  const other = await takenInHand(setting, record)

  const delivered = subscriber.deliver([record])
  await untilLockWait(db)
  const atFirst = consumer.status()
  aheadMs += 60_000
  const later = consumer.status()
  await Promise.all([other.letGo(), delivered])

  expect(atFirst).toMatchObject({ ready: true, problems: [] })
  expect(later).toMatchObject({
    ready: false,
    problems: [expect.stringMatching(/^The database has not answered the consumer for 6\d s$/)],
  })
  await eventually('it is ready again', () => consumer.status().ready)
  expect(await setting.effects()).toEqual([idOf(record)])
})

test('a handler that takes long is no database that does not answer', async () => {
  let aheadMs = 0
  const clock = { ...systemClock, now: () => systemClock.now() + aheadMs }
  await using setting = await createSetting(
    async (trx, event) => {
      aheadMs += 60_000
      // Not at once: a look for requests may be under way, and be answered.
      await eventually('it is ready', () => setting.consumer.status().ready)
      await writeEffect(trx, event)
    },
    { clock, maxAttempts: 1 },
  )

  await setting.subscriber.deliverAll([recordOf(0), recordOf(1)])

  expect(await setting.effects()).toHaveLength(2)
})

test('a redelivery elsewhere does not look like a database that went back to a member that was about to finish', async () => {
  const [started, freed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const records = [0, 1, 2, 3].map((offset) => recordOf(offset))
  await using first = await createSetting(async (trx, event) => {
    if (event.id === records[3]?.headers.event_id) {
      started.resolve()
      await freed.promise
    }
    await writeEffect(trx, event)
  })
  await first.subscriber.startOffset({ topic: TOPIC, partition: 0 })
  await first.subscriber.deliver(records.slice(0, 3))
  const finishing = first.subscriber.deliver(records.slice(3))
  await started.promise

  // The group knows of no commit yet, so the partition's next owner gets it from the start.
  await using second = await joinSetting(first)
  await second.subscriber.startOffset({ topic: TOPIC, partition: 0 })
  await second.subscriber.deliver(records.slice(0, 2))
  freed.resolve()

  expect(await finishing).toEqual({ nextOffset: 4n, pauseMs: 0 })
  expect(await first.effects()).toEqual(records.map(idOf))
})

test('a record whose value Postgres cannot hold is set aside in base64, and its partition goes on', async () => {
  await using setting = await createSetting()
  const [foreign, next] = [recordOf(0, { value: '1e999999', headers: { event_id: '' } }), recordOf(1)]

  await setting.subscriber.deliverAll([foreign, next])

  expect(await setting.effects()).toEqual([idOf(next)])
  expect(await listDeadLetters(setting.db)).toMatchObject([{ offset: 0n, reason: 'NO_EVENT_ID' }])
  const [letter] = await setting.db('outbox')
  expect(letter).toMatchObject({
    payload: Buffer.from('1e999999').toString('base64'),
    headers: { payload_encoding: 'base64' },
  })
})

test('a record that is none of ours is set aside with what it lacks', async () => {
  await using setting = await createSetting()

  await setting.subscriber.deliverAll([
    recordOf(0, { headers: { event_id: '' } }),
    recordOf(1, { headers: { event_id: 'order-7' } }),
    recordOf(2, { headers: { event_type: '' } }),
    recordOf(3, { key: '' }),
  ])

  const reasons = (await listDeadLetters(setting.db)).map(({ reason }) => reason)
  expect(reasons).toEqual(['NO_EVENT_ID', 'EVENT_ID_NOT_UUID', 'NO_EVENT_TYPE', 'NO_KEY'])
})

test('an event that fails, and whose key no index takes, is set aside without being held, and its partition goes on', async () => {
  const long = recordOf(0, { key: randomBytes(3_000).toString('base64') })
  let isFailing = true
  await using setting = await createSetting(async (trx, event) => {
    if (isFailing && event.id === idOf(long)) throw new Error('no')
    await writeEffect(trx, event)
  })
  const next = recordOf(1)

  await setting.subscriber.deliverAll([long, next])

  expect(await setting.effects()).toEqual([idOf(next)])
  expect(await listHeldKeys(setting.db)).toEqual([])
  expect(await listDeadLetters(setting.db)).toMatchObject([{ offset: 0n, eventId: null, reason: 'CANNOT_BE_HELD' }])
  // Delivered again it would come after what followed it.
  isFailing = false
  await setting.subscriber.deliverAll([long, next])
  expect(await setting.effects()).toEqual([idOf(next)])
})

test('an event that fails, and whose aggregate type no index takes, is set aside under that of its topic, and its partition goes on', async () => {
  const long = recordOf(0, { headers: { aggregate_type: randomBytes(3_000).toString('hex') } })
  await using setting = await createSetting(async (trx, event) => {
    if (event.id === idOf(long)) throw new Error('no')
    await writeEffect(trx, event)
  })
  const next = recordOf(1)

  const outcome = await setting.subscriber.deliver([long, next])

  expect(outcome).toEqual({ nextOffset: 2n, pauseMs: 0 })
  expect(await setting.effects()).toEqual([idOf(next)])
  expect(await listHeldKeys(setting.db)).toEqual([])
  expect(await listDeadLetters(setting.db)).toMatchObject([
    { offset: 0n, aggregateType: 'order', eventId: null, reason: 'CANNOT_BE_HELD' },
  ])
})

test.each(['event_type', 'occurred_at', 'traceparent', 'tracestate', 'tenant'])(
  'an event that fails and has a header %s of any length is parked as any other',
  async (name) => {
    const text = randomBytes(3_000).toString('hex')
    const refuse: Handler = async () => {
      throw new Error('no')
    }
    const handlers = defineHandlers({ OrderPlaced: refuse, [text]: refuse })
    await using setting = await createSetting(handlers, { maxAttempts: 1 })

    const outcome = await setting.subscriber.deliver([recordOf(0, { key: 'a', headers: { [name]: text } })])

    expect(outcome).toEqual({ nextOffset: 1n, pauseMs: 0 })
    expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', aggregateId: 'a' }])
    expect(await listDeadLetters(setting.db)).toMatchObject([{ offset: 0n, aggregateId: 'a' }])
  },
)

test('an event that only the table of held keys refuses waits for that, and is not set aside', async () => {
  await using setting = await createSetting(() => refuse(), { maxAttempts: 1 })
  const { db } = setting
  await db.raw(`create function refuse() returns trigger language plpgsql
                as $$ begin raise exception 'not now' using errcode = '22012'; end $$`)
  await db.raw('create trigger refuse before insert on held_keys for each row execute function refuse()')
  const record = recordOf(0, { key: 'a' })

  const outcome = await setting.subscriber.deliver([record])
  const setAside = await listDeadLetters(db)
  await db.raw('drop trigger refuse on held_keys')
  await setting.subscriber.deliverAll([record])

  expect(outcome).toEqual({ nextOffset: 0n, pauseMs: expect.any(Number) })
  expect(setAside).toEqual([])
  expect(await listDeadLetters(db)).toMatchObject([{ aggregateId: 'a', eventId: idOf(record), attempts: 1 }])
})

test('PC-54: a batch ends early when its partition is taken away, and begins nothing new', async () => {
  const gone = new AbortController()
  await using setting = await createSetting(
    async (trx, event) => {
      await writeEffect(trx, event)
      gone.abort()
    },
    { batchSize: 1 },
  )

  const outcome = await setting.subscriber.deliver(
    [0, 1, 2].map((offset) => recordOf(offset)),
    { signal: gone.signal },
  )

  expect(outcome).toEqual({ nextOffset: 1n, pauseMs: 0 })
  expect(await setting.effects()).toHaveLength(1)
})

test('says of a database error which table and column it concerns, and never the values', async () => {
  const handler: Handler = async (trx) => {
    await trx('effects').insert({ aggregate_id: 'a customer' })
  }
  await using setting = await createSetting(handler, { maxAttempts: 1 })

  await setting.subscriber.deliverAll([recordOf(0, { key: 'a' })])

  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', reason: '23502 (table effects, column event_id)' },
  ])

  // Knex alone knows where a statement was made, and only if it is told to remember.
  const db = setting.database.createPool({ asyncStackTraces: true })
  await using remembering = await joinSetting(setting, handler, { db, name: 'other', maxAttempts: 1 })
  await remembering.subscriber.deliverAll([recordOf(1, { key: 'b' })])

  expect(await listHeldKeys(setting.db, { holder: 'other' })).toMatchObject([
    {
      reason: expect.stringMatching(
        /^23502 \(table effects, column event_id\) at consumer\/failures\.test\.ts:\d+:\d+$/,
      ),
    },
  ])
})

test.each<[string, Handler, RegExp]>([
  [
    'Postgres quotes it',
    async (trx, event) => {
      await trx.raw('select cast(? as text)::int', [noteOf(event)])
    },
    /^22P02$/,
  ],
  [
    'the handler puts it into its error',
    async (_trx, event) => {
      throw new RangeError(`cannot handle ${noteOf(event)}`)
    },
    /^RangeError at consumer\/failures\.test\.ts:\d+:\d+$/,
  ],
])(
  'a value with lines like those of a stack is in no reason and no line of the log where %s',
  async (_who, handler, reason) => {
    const { logger, lines } = keepLog('consumer')
    await using setting = await createSetting(handler, { maxAttempts: 2, logger })
    const note = 'x\n  at 4111111111111111:1\n    at pay (/srv/4111111111111111.ts:1:2)\n'

    const record = recordOf(0, { key: 'a', value: JSON.stringify({ note }) })
    await setting.subscriber.deliver([record])
    const { holding } = setting.consumer.status()
    await setting.subscriber.deliverAll([record])

    expect(holding).toMatchObject([{ reason: expect.stringMatching(reason) }])
    expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', reason: expect.stringMatching(reason) }])
    expect(lines.length).toBeGreaterThan(0)
    expect(JSON.stringify(lines)).not.toContain('4111111111111111')
  },
)

test('an event whose error quotes a zero character is tried again and parked as any other', async () => {
  await using setting = await createSetting(async (_trx, event) => {
    throw new Error(`cannot handle ${noteOf(event)}`)
  })

  await setting.subscriber.deliverAll([
    recordOf(0, { key: 'a', value: JSON.stringify({ note: 'x\n    at s\0t (/srv/s\0t.ts:1:2)' }) }),
  ])

  expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', attempts: 5 }])
  expect(await listDeadLetters(setting.db)).toMatchObject([
    { aggregateId: 'a', attempts: 5, reason: expect.stringMatching(/^Error at consumer\/failures\.test\.ts:\d+:\d+$/) },
  ])
})

test('the log gives the reason that the lists give, and no path of this machine', async () => {
  const said: [string, unknown][] = []
  const write = (fields: { readonly reason?: unknown }, message: string) => void said.push([message, fields.reason])
  await using setting = await createSetting(
    async (trx, event) => {
      if (event.aggregate.id === 'b') throw new RangeError('no')
      await trx('effects').insert({ aggregate_id: 'a customer' })
    },
    { maxAttempts: 2, logger: { ...silentLogger, warn: write, error: write } },
  )

  await setting.subscriber.deliverAll([recordOf(0, { key: 'a' })])
  await setting.subscriber.deliverAll([recordOf(1, { key: 'b' })])

  const parked = await listHeldKeys(setting.db)
  const reasonOf = (key: string) => parked.find(({ aggregateId }) => aggregateId === key)?.reason
  expect(reasonOf('a')).toBe('23502 (table effects, column event_id)')
  expect(reasonOf('b')).toMatch(/^RangeError at consumer\/failures\.test\.ts:\d+:\d+$/)
  expect(said).toEqual(
    ['a', 'b'].flatMap((key) => [
      ['A handler failed; its partition waits for the next attempt', reasonOf(key)],
      ['Parked a key after its last attempt', reasonOf(key)],
    ]),
  )
})

test('its status is JSON, also while an event holds its partition', async () => {
  await using setting = await createSetting(
    async () => {
      throw new RangeError('refused')
    },
    { retryFirstMs: 60_000, retryMaxMs: 60_000 },
  )

  await setting.subscriber.deliver([recordOf(7, { key: 'a' })])
  const status = setting.consumer.status()

  expect(status.holding).toMatchObject([{ offset: 7, attempts: 1 }])
  expect(JSON.parse(JSON.stringify(status))).toEqual(status)
})
