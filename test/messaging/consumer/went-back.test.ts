/** A database that goes back under a running consumer: restored from a backup, or replaced by a standby that lagged behind. */
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { type Consumer, startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers, type Handler } from '../../../src/messaging/consumer/handlers.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { createEffects, effectsOf, fast, writeEffect } from './setting.ts'

const TOPIC = 'order.events'
const GROUP = 'summary'

let database: TestDatabase
let broker: InMemoryBroker
beforeEach(async () => {
  database = await createTestDatabase()
  await createEffects(database.db)
  broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
})
afterEach(async () => {
  await broker.close()
  await database[Symbol.asyncDispose]()
})

function start(handler: Handler = writeEffect): Consumer {
  return startConsumer({
    name: GROUP,
    topics: [TOPIC],
    db: database.db,
    subscriber: broker.createSubscriber(),
    handlers: defineHandlers({ OrderPlaced: handler }),
    ...fast,
  })
}

/** Publishes events of one aggregate; resolves to their ids. */
async function publish(count: number, type = 'OrderPlaced'): Promise<readonly string[]> {
  const ids = Array.from({ length: count }, () => uuidv7())
  const records = ids.map((id) => ({ key: 'order-1', value: '{}', headers: { event_id: id, event_type: type } }))
  await broker.publish({ topic: TOPIC, partition: 0, records }, { signal: new AbortController().signal })
  return ids
}

/** Puts the database back to when only `kept` had had their effects. */
async function putBack(db: Knex, kept: readonly string[]): Promise<void> {
  await db.transaction(async (trx) => {
    await trx('effects').whereNotIn('event_id', kept).delete()
    await trx('processed_events').whereNotIn('event_id', kept).delete()
    if (kept.length === 0) await trx('consumer_offsets').delete()
    else await trx('consumer_offsets').update({ next_offset: kept.length })
  })
}

test.each([5, 0])(
  'what it has lost beyond its first %i events takes effect again, in order and before what comes next',
  async (count) => {
    await using consumer = start()
    const before = await publish(10)
    await consumer.whenCaughtUp()
    await putBack(database.db, before.slice(0, count))

    const after = await publish(1)
    await eventually('all effects', async () => (await effectsOf(database.db)).length === 11)

    expect(await effectsOf(database.db)).toEqual([...before, ...after])
    await eventually('it is well', () => consumer.status().ready)
    expect(await database.db('held_keys')).toEqual([])
  },
)

test('the same holds where an event without a handler comes next', async () => {
  await using consumer = start()
  const before = await publish(4)
  await consumer.whenCaughtUp()
  await putBack(database.db, before.slice(0, 2))

  await publish(1, 'Unknown')
  await eventually('all effects', async () => (await effectsOf(database.db)).length === 4)

  expect(await effectsOf(database.db)).toEqual(before)
})

test('it is found where nothing comes next', async () => {
  await using consumer = start()
  const before = await publish(4)
  await consumer.whenCaughtUp()
  await putBack(database.db, before.slice(0, 2))

  await eventually('all effects', async () => (await effectsOf(database.db)).length === 4, 60_000)

  expect(await effectsOf(database.db)).toEqual(before)
  expect(consumer.status().phase).not.toBe('ended')
})

test('a transaction that rolled back is no database that went back', async () => {
  let failing = true
  const calls: string[] = []
  await using consumer = start(async (trx, event) => {
    calls.push(event.id)
    await writeEffect(trx, event)
    if (failing) throw new Error('no')
  })
  const ids = await publish(2)
  await eventually('it has failed twice', () => calls.length >= 4)
  failing = false
  await consumer.whenCaughtUp()
  const after = await publish(2)
  await consumer.whenCaughtUp()

  expect(await effectsOf(database.db)).toEqual([...ids, ...after])
  // Never joined anew: the group's first deal is still the one in force.
  expect(calls.slice(-2)).toEqual(after)
})
