/** Requests that meet one another, or an attempt that is under way. */
import { expect, test } from '@jest/globals'
import { defineHandlers, type Handler } from '../../../src/messaging/consumer/handlers.ts'
import { lockHeldKeys, recordAttempts } from '../../../src/messaging/dead-letters/held-keys.ts'
import { listDeadLetters, listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import {
  type RequestOutcome,
  requestResume,
  requestRetryNow,
  requestSkip,
} from '../../../src/messaging/dead-letters/requests.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { untilLockWait } from '../../support/sessions.ts'
import { recordOf, TOPIC } from '../consumer/scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, type Setting, writeEffect } from '../consumer/setting.ts'

const KEY = { holder: 'summary', topic: TOPIC, aggregateType: 'order', aggregateId: 'a' }
const TOO_MANY_CONNECTIONS = '53300'

/** A consumer whose handler refuses the events in `refused`, and waits in the middle of those in `awaited`. */
async function createGated(options: Parameters<typeof createSetting>[1] = {}) {
  const refused = new Set<string>()
  const awaited = new Map<string, { readonly entered: () => void; readonly left: Promise<void> }>()
  const tries: string[] = []
  const setting = await createSetting(async (trx, event) => {
    tries.push(event.id)
    const isRefused = refused.has(event.id)
    const gate = awaited.get(event.id)
    gate?.entered()
    await gate?.left
    if (isRefused) throw new RangeError('refused')
    await writeEffect(trx, event)
  }, options)

  /** Asks for something while the event with this id is in its handler: the request waits for the attempt's end. */
  async function askDuring(id: string, begin: () => Promise<unknown>, ask: () => Promise<RequestOutcome>) {
    const entered = Promise.withResolvers<void>()
    const left = Promise.withResolvers<void>()
    awaited.set(id, { entered: entered.resolve, left: left.promise })
    const begun = begin()
    await entered.promise
    awaited.delete(id)
    const asked = ask()
    await untilLockWait(setting.db)
    left.resolve()
    await begun
    return await asked
  }
  return { setting, refused, tries, askDuring, [Symbol.asyncDispose]: () => setting[Symbol.asyncDispose]() }
}

function recordsOf(count: number) {
  const records = Array.from({ length: count }, (_, offset) => recordOf(offset, { key: 'a' }))
  return { records, ids: records.map(idOf), idAt: (at: number) => records.map(idOf)[at] ?? '' }
}

async function letGo({ db }: Setting): Promise<void> {
  await eventually('every key is let go', async () => (await listHeldKeys(db)).length === 0)
}

async function skippedOf({ db }: Setting): Promise<readonly (string | null)[]> {
  return (await listDeadLetters(db, { states: ['skipped'] })).map(({ eventId }) => eventId)
}

test('F34 a skip asked again while what waits behind is redriven leaves out nothing more', async () => {
  await using gated = await createGated()
  const { setting, refused, askDuring } = gated
  const { records, ids, idAt } = recordsOf(6)
  refused.add(idAt(0))
  await setting.subscriber.deliverAll(records)

  const skip = () => requestSkip(setting.db, KEY)
  expect(await askDuring(idAt(1), skip, skip)).toBe('requested')
  await letGo(setting)

  expect(await skippedOf(setting)).toEqual([idAt(0)])
  expect(await setting.effects()).toEqual(ids.slice(1))
})

test('F34 a skip asked while a resume is carried out leaves out no event that was never tried', async () => {
  await using gated = await createGated()
  const { setting, refused, askDuring } = gated
  const { records, ids, idAt } = recordsOf(6)
  refused.add(idAt(0))
  await setting.subscriber.deliverAll(records)
  refused.clear()

  await askDuring(
    idAt(0),
    () => requestResume(setting.db, KEY),
    () => requestSkip(setting.db, KEY),
  )
  await letGo(setting)

  expect(await skippedOf(setting)).toEqual([])
  expect(await setting.effects()).toEqual(ids)
})

test('a skip leaves out the event at which a redrive has failed since', async () => {
  await using gated = await createGated()
  const { setting, refused } = gated
  const { records, idAt } = recordsOf(4)
  refused.add(idAt(0)).add(idAt(2))
  await setting.subscriber.deliverAll(records)

  await requestSkip(setting.db, KEY)
  await eventually('the third failed', async () => (await listHeldKeys(setting.db))[0]?.eventId === idAt(2))
  await requestSkip(setting.db, KEY)
  await letGo(setting)

  expect(await skippedOf(setting)).toEqual([idAt(0), idAt(2)])
  expect(await setting.effects()).toEqual([idAt(1), idAt(3)])
})

test('a resume waits for an instance that has a handler for the event, and says so', async () => {
  let refusing = true
  const handle: Handler = async (trx, event) => {
    if (refusing) throw new RangeError('refused')
    await writeEffect(trx, event)
  }
  const both = defineHandlers({ OrderPlaced: handle, OrderShipped: handle })
  await using setting = await createSetting(both)
  const shipped = recordOf(0, { key: 'a', type: 'OrderShipped' })
  await setting.subscriber.deliverAll([shipped])
  await setting.consumer.stop()
  refusing = false

  await using older = await joinSetting(setting, writeEffect)
  expect(await requestResume(older.db, KEY)).toBe('requested')
  const problem = `The request for order a of ${TOPIC} cannot be carried out (no handler for OrderShipped in this instance)`
  await eventually('the older one says why', () => older.consumer.status().problems.includes(problem))
  const meanwhile = await listHeldKeys(older.db)
  await using newer = await joinSetting(setting, both)
  await letGo(newer)

  expect(meanwhile).toMatchObject([{ request: 'resume', eventId: idOf(shipped) }])
  expect(await newer.effects()).toEqual([idOf(shipped)])
})

test('an event of a type that no instance handles can be skipped, but not by a skip of the one before it', async () => {
  const refused = new Set<string>()
  const handle: Handler = async (trx, event) => {
    if (refused.has(event.id)) throw new RangeError('refused')
    await writeEffect(trx, event)
  }
  await using setting = await createSetting(defineHandlers({ OrderPlaced: handle, OrderShipped: handle }))
  const records = [
    recordOf(0, { key: 'a' }),
    recordOf(1, { key: 'a', type: 'OrderShipped' }),
    recordOf(2, { key: 'a' }),
  ] as const
  const [placed, shipped, last] = records
  refused.add(idOf(placed))
  await setting.subscriber.deliverAll(records)
  await setting.consumer.stop()

  await using without = await joinSetting(setting, writeEffect)
  await requestSkip(without.db, KEY)
  await eventually(
    'the key waits for the other',
    async () => (await listHeldKeys(without.db))[0]?.eventId === idOf(shipped),
  )
  await eventually('it says why', () =>
    without.consumer.status().problems.some((said) => said.includes('no handler for OrderShipped')),
  )
  const waiting = await listHeldKeys(without.db)
  await requestSkip(without.db, KEY)
  await letGo(without)

  expect(waiting).toMatchObject([{ eventType: 'OrderShipped', reason: 'NO_HANDLER', request: 'resume' }])
  expect(await skippedOf(without)).toEqual([idOf(placed), idOf(shipped)])
  expect(await without.effects()).toEqual([idOf(last)])
})

test('a skip asked while the redrive of the same event fails is carried out', async () => {
  await using gated = await createGated()
  const { setting, refused, askDuring } = gated
  const { records, idAt } = recordsOf(2)
  refused.add(idAt(0))
  await setting.subscriber.deliverAll(records)

  const asked = await askDuring(
    idAt(0),
    () => requestResume(setting.db, KEY),
    () => requestSkip(setting.db, KEY),
  )
  await letGo(setting)

  expect(asked).toBe('requested')
  expect(await skippedOf(setting)).toEqual([idAt(0)])
  expect(await setting.effects()).toEqual([idAt(1)])
})

test('a skip that came before another event became the first is no skip of that one', async () => {
  await using gated = await createGated({ maxAttempts: 1 })
  const { setting, refused } = gated
  const { db } = setting
  const { records, idAt } = recordsOf(1)
  refused.add(idAt(0))
  await setting.subscriber.deliverAll(records)
  await setting.consumer.stop()

  const { held } = await db.transaction((trx) => lockHeldKeys(trx, KEY, [KEY]))
  await requestSkip(db, KEY)
  const failure = { attempts: 2, eventType: 'OrderPlaced', reason: 'refused', retryInMs: 0 }
  const rowVersion = held[0]?.rowVersion ?? null
  await db.transaction((trx) => recordAttempts(trx, KEY, { ...failure, rowVersion, eventId: idAt(0) }))
  const ofTheSame = await listHeldKeys(db)
  const other = idOf(recordOf(1))
  await db.transaction((trx) => recordAttempts(trx, KEY, { ...failure, rowVersion, eventId: other }))

  expect(ofTheSame).toMatchObject([{ eventId: idAt(0), request: 'skip' }])
  expect(await listHeldKeys(db)).toMatchObject([{ eventId: other, request: 'resume' }])
})

test('a resume asked again while the redrive fails is carried out', async () => {
  await using gated = await createGated()
  const { setting, refused, tries, askDuring } = gated
  const { records, ids, idAt } = recordsOf(1)
  refused.add(idAt(0))
  await setting.subscriber.deliverAll(records)
  const before = tries.length

  const resume = () => requestResume(setting.db, KEY)
  await askDuring(idAt(0), resume, () => {
    refused.clear()
    return resume()
  })
  await letGo(setting)

  expect(await setting.effects()).toEqual(ids)
  expect(tries.length - before).toBe(2)
})

test('a retry-now asked during an attempt that fails makes the next one due', async () => {
  await using gated = await createGated({ retryFirstMs: 3_600_000, retryMaxMs: 3_600_000 })
  const { setting, refused, tries, askDuring } = gated
  const [bad] = recordsOf(1).records
  if (!bad) throw new Error('no record')
  refused.add(idOf(bad))
  const deliver = () => setting.subscriber.deliver([bad])
  const retryNow = () => requestRetryNow(setting.db, KEY)

  await deliver()
  const whileResting = await deliver()
  await retryNow()
  expect(await askDuring(idOf(bad), deliver, retryNow)).toBe('requested')
  const again = await listHeldKeys(setting.db)
  await deliver()
  const after = await listHeldKeys(setting.db)
  const atRest = await deliver()

  expect([whileResting.nextOffset, atRest.nextOffset]).toEqual([0n, 0n])
  expect(again).toMatchObject([{ request: 'retry_now', attempts: 2 }])
  expect(after).toMatchObject([{ request: null, attempts: 3 }])
  expect(tries).toHaveLength(3)
})

test('a retry-now asked during the last attempt leaves a parked key of which nothing is asked', async () => {
  await using gated = await createGated({ maxAttempts: 2 })
  const { setting, refused, tries, askDuring } = gated
  const [bad] = recordsOf(1).records
  if (!bad) throw new Error('no record')
  refused.add(idOf(bad))
  await setting.subscriber.deliver([bad])

  await askDuring(
    idOf(bad),
    () => setting.subscriber.deliverAll([bad]),
    () => requestRetryNow(setting.db, KEY),
  )

  expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', attempts: 2, request: null }])
  expect(tries).toHaveLength(2)
})

test('requests that are stuck keep none behind them from being carried out, and are told of all together', async () => {
  let phase: 'refusing' | 'stuck' | 'well' = 'refusing'
  const stuckIds = Array.from({ length: 20 }, (_, at) => `stuck-${at}`)
  await using setting = await createSetting(
    async (trx, event) => {
      if (phase === 'refusing') throw new RangeError('refused')
      if (phase === 'stuck' && event.aggregate.id !== 'well') {
        throw Object.assign(new Error('no'), { code: TOO_MANY_CONNECTIONS })
      }
      await writeEffect(trx, event)
    },
    { maxAttempts: 1 },
  )
  const { db } = setting
  // Held longest, and first by name: no order of these two puts the other before them.
  const records = [...stuckIds, 'well'].map((key, offset) => recordOf(offset, { key }))
  await setting.subscriber.deliverAll(records)
  phase = 'stuck'
  for (const aggregateId of [...stuckIds, 'well']) await requestResume(db, { ...KEY, aggregateId })

  await eventually('the last is let go', async () => (await listHeldKeys(db)).length === stuckIds.length)
  const during = await setting.effects()
  await eventually('all are told of', () =>
    setting.consumer.status().problems.some((said) => said.endsWith(', and for 19 more')),
  )
  phase = 'well'
  await letGo(setting)

  expect(during).toEqual([idOf(records.at(-1) ?? recordOf(0))])
  expect(await setting.effects()).toHaveLength(records.length)
  await eventually('it is well', () => setting.consumer.status().problems.length === 0)
})

test('a redrive that fails with an error that cannot be looked at counts, and keeps no other key from its turn', async () => {
  let hostile = false
  await using setting = await createSetting(
    async () => {
      if (!hostile) throw new RangeError('refused')
      throw Object.defineProperty(new Error('no'), 'stack', {
        get: () => {
          throw new Error('It cannot be looked at')
        },
      })
    },
    { maxAttempts: 1 },
  )
  const { db } = setting
  await setting.subscriber.deliverAll([recordOf(0, { key: 'a' }), recordOf(1, { key: 'b' })])
  hostile = true

  for (const aggregateId of ['a', 'b']) await requestResume(db, { ...KEY, aggregateId })

  await eventually('both were tried', async () => (await listHeldKeys(db)).every(({ request }) => request === null))
  expect(await listHeldKeys(db)).toMatchObject([
    { state: 'parked', attempts: 2, reason: 'Error' },
    { state: 'parked', attempts: 2, reason: 'Error' },
  ])
})

test('a key at whose redrive something unforeseen happens keeps no other key from its turn, and is told of', async () => {
  let phase: 'refusing' | 'well' = 'refusing'
  const fail = (fields: object) => {
    if (phase === 'well' && 'aggregate_id' in fields && fields.aggregate_id === 'a')
      throw new RangeError('The log is full')
  }
  await using setting = await createSetting(
    async (trx, event) => {
      if (phase === 'refusing') throw new RangeError('refused')
      await writeEffect(trx, event)
    },
    { maxAttempts: 1, logger: { ...silentLogger, info: fail } },
  )
  const { db } = setting
  const records = ['a', 'a', 'b'].map((key, offset) => recordOf(offset, { key }))
  await setting.subscriber.deliverAll(records)
  phase = 'well'

  for (const aggregateId of ['a', 'b']) await requestResume(db, { ...KEY, aggregateId })

  await eventually('it is told of', () =>
    setting.consumer
      .status()
      .problems.includes('The request for order a of order.events cannot be carried out (RangeError)'),
  )
  await letGo(setting)
  expect([...(await setting.effects())].sort()).toEqual(records.map(idOf).sort())
})

test('a failed redrive that cannot be noted is told of, and its request stands', async () => {
  await using setting = await createSetting(
    async () => {
      throw new RangeError('refused')
    },
    { maxAttempts: 1 },
  )
  const { db } = setting
  await setting.subscriber.deliverAll([recordOf(0, { key: 'a' })])
  await db.raw(`create function refuse() returns trigger language plpgsql
                as $$ begin raise exception 'not now' using errcode = '22012'; end $$`)
  await db.raw('create trigger refuse before update on dead_letters for each row execute function refuse()')

  await requestResume(db, KEY)
  await eventually('it is told of', () =>
    setting.consumer
      .status()
      .problems.includes('The request for order a of order.events cannot be carried out (22012)'),
  )
  const during = await listHeldKeys(db)
  await db.raw('drop trigger refuse on dead_letters')

  expect(during).toMatchObject([{ attempts: 1, request: 'resume' }])
  await eventually('it is noted', async () => (await listHeldKeys(db))[0]?.request === null)
})
