/**
 * The consumer over the broker in memory, as users of `./testing` have it: by
 * the package's doors alone, with a real database and no Kafka.
 */
import { expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import {
  appendToOutbox,
  type Consumer,
  type ConsumerTuning,
  defineHandlers,
  inTransaction,
  listDeadLetters,
  listHeldKeys,
  type ReceivedEvent,
  requestResume,
  requestSkip,
  startConsumer,
  startRelay,
} from '../../../src/messaging/index.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { testPostgresUrl } from '../../support/postgres.ts'
import { createEffects, effectsOf, fast, writeEffect } from './setting.ts'

const TOPIC = 'order.events'
const GROUP = 'summary'
const key = (id: string) => ({ holder: GROUP, topic: TOPIC, aggregateType: 'order', aggregateId: id })

interface Setting extends AsyncDisposable {
  readonly database: TestDatabase
  readonly db: Knex
  readonly broker: InMemoryBroker
  /** Publishes one event of an aggregate to a partition; resolves to its id. */
  publish(aggregateId: string, options?: { readonly id?: string; readonly partition?: number }): Promise<string>
  /** Another member of the group. Stopped with the rest. */
  join(options?: ConsumerTuning & { readonly handler?: typeof writeEffect; readonly db?: Knex }): Consumer
}

/** A broker with a topic of two partitions, a database with effects, and no consumer yet. */
async function createSetting(): Promise<Setting> {
  const database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 2 } })
  const consumers: Consumer[] = []
  return {
    database,
    db,
    broker,
    async publish(aggregateId, { id = uuidv7(), partition = 0 } = {}) {
      const headers = { event_id: id, event_type: 'OrderPlaced', occurred_at: new Date().toISOString() }
      const records = [{ key: aggregateId, value: '{}', headers }]
      await broker.publish({ topic: TOPIC, partition, records }, { signal: new AbortController().signal })
      return id
    },
    join({ handler = writeEffect, ...options } = {}) {
      const handlers = defineHandlers({ OrderPlaced: handler })
      const subscriber = broker.createSubscriber()
      const consumer = startConsumer({ name: GROUP, topics: [TOPIC], db, subscriber, handlers, ...fast, ...options })
      consumers.push(consumer)
      return consumer
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(consumers.map((consumer) => consumer.stop()))
      await broker.close()
      await database[Symbol.asyncDispose]()
    },
  }
}

/** A handler that fails for the events whose ids are in `refused`. */
function refusing(refused: ReadonlySet<string>): typeof writeEffect {
  return async (trx, event: ReceivedEvent) => {
    if (refused.has(event.id)) throw new RangeError('no')
    await writeEffect(trx, event)
  }
}

test('each effect happens once and in order, also of an event that is on the topic twice', async () => {
  await using setting = await createSetting()
  const ids: string[] = []
  for (let n = 0; n < 20; n += 1) ids.push(await setting.publish('order-1'))
  await setting.publish('order-1', { id: ids[3] ?? '' })
  await setting.publish('order-1', { id: ids[19] ?? '' })

  await setting.join().whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual(ids)
  expect(setting.broker.committed(GROUP, { topic: TOPIC, partition: 0 })).toBe(22n)
})

test('a batch whose answer was lost is stored once, and its effects happen once', async () => {
  await using setting = await createSetting()
  setting.broker.faults.loseAnswers(2)
  const ids = [await setting.publish('order-1'), await setting.publish('order-1')]

  await setting.join().whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual(ids)
})

test('a consumer that was stopped goes on where it was, and handles nothing again', async () => {
  await using setting = await createSetting()
  const before = [await setting.publish('order-1'), await setting.publish('order-2', { partition: 1 })]
  const first = setting.join()
  await first.whenCaughtUp()
  await first.stop()
  const after = await setting.publish('order-1')

  const seen: string[] = []
  await setting
    .join({
      handler: async (trx, event) => {
        seen.push(event.id)
        await writeEffect(trx, event)
      },
    })
    .whenCaughtUp()

  expect(seen).toEqual([after])
  expect([...(await effectsOf(setting.db))].sort()).toEqual([...before, after].sort())
})

test('members share the partitions, and what one has in hand at a rebalance happens once', async () => {
  await using setting = await createSetting()
  const inHand = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  const first = setting.join({
    batchSize: 1,
    handler: async (trx, event) => {
      inHand.resolve()
      await goOn.promise
      await writeEffect(trx, event)
    },
  })
  const ids = [await setting.publish('order-1'), await setting.publish('order-1')]
  await inHand.promise
  const second = setting.join({ db: setting.database.createPool() })
  goOn.resolve()
  const late = [await setting.publish('order-2', { partition: 1 }), await setting.publish('order-1')]
  await Promise.all([first, second].map((member) => member.whenCaughtUp()))

  expect([first, second].map((member) => member.status().partitions.length)).toEqual([1, 1])
  expect((await effectsOf(setting.db)).filter((id) => id !== late[0])).toEqual([...ids, late[1]])
  expect(await effectsOf(setting.db)).toContain(late[0])
})

test('a poisonous event parks its key after the last attempt, and all others flow', async () => {
  await using setting = await createSetting()
  const bad = await setting.publish('bad')
  const [follower, other] = [await setting.publish('bad'), await setting.publish('good')]
  const consumer = setting.join({ handler: refusing(new Set([bad])) })
  await consumer.whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual([other])
  expect(await listHeldKeys(setting.db)).toMatchObject([{ ...key('bad'), state: 'parked', attempts: 5, eventId: bad }])
  expect(await listDeadLetters(setting.db)).toMatchObject([
    { eventId: bad, state: 'dead' },
    { eventId: follower, state: 'waiting' },
  ])
  await eventually('it is told', () => consumer.status().parkedCount === 1)
  expect(consumer.status().ready).toBe(true)
})

test('a parked key that is resumed goes on with the event that failed, in order, also with what came meanwhile', async () => {
  await using setting = await createSetting()
  const bad = await setting.publish('bad')
  const refused = new Set([bad])
  const consumer = setting.join({ handler: refusing(refused) })
  await consumer.whenCaughtUp()
  const followers = [await setting.publish('bad'), await setting.publish('bad')]
  await consumer.whenCaughtUp()
  expect(await effectsOf(setting.db)).toEqual([])

  refused.clear()
  expect(await requestResume(setting.db, key('bad'))).toBe('requested')
  await eventually('the key is let go', async () => (await listHeldKeys(setting.db)).length === 0)
  const last = await setting.publish('bad')
  await consumer.whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual([bad, ...followers, last])
  expect(await listDeadLetters(setting.db, { states: ['dead', 'waiting'] })).toEqual([])
})

test('an event that is skipped has no effect, and what waits behind it has', async () => {
  await using setting = await createSetting()
  const bad = await setting.publish('bad')
  const consumer = setting.join({ handler: refusing(new Set([bad])) })
  await consumer.whenCaughtUp()
  const follower = await setting.publish('bad')
  await consumer.whenCaughtUp()

  expect(await requestSkip(setting.db, key('bad'))).toBe('requested')
  await eventually('the key is let go', async () => (await listHeldKeys(setting.db)).length === 0)
  // Once more, as after a fault: what was skipped stays so.
  await setting.publish('bad', { id: bad })
  await consumer.whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual([follower])
})

test('while its database is away the consumer waits, says so, parks nothing, and then goes on by itself', async () => {
  await using setting = await createSetting()
  const ids = [await setting.publish('order-1')]
  const consumer = setting.join({ maxAttempts: 1 })
  await consumer.whenCaughtUp()
  await using away = await takeAway(setting.database)
  for (let n = 0; n < 3; n += 1) ids.push(await setting.publish('order-1'))
  await eventually('it says so', () => consumer.status().problems.join().includes('database cannot be used'))
  expect(consumer.status().ready).toBe(false)

  await away.bringBack()
  await consumer.whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual(ids)
  expect(await listHeldKeys(setting.db)).toEqual([])
  expect(consumer.status()).toMatchObject({ ready: true, problems: [] })
})

test('with a relay before it, an event has its effect once the transaction that appended it has committed', async () => {
  await using setting = await createSetting()
  const consumer = setting.join()
  await using _relay = startRelay({ db: setting.db, publisher: setting.broker.createPublisher(), pollIntervalMs: 100 })

  const failing = inTransaction(setting.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('OrderPlaced', 'order-1')])
    throw new Error('roll back')
  })
  await expect(failing).rejects.toThrow('roll back')
  await inTransaction(setting.db, (trx) =>
    appendToOutbox(trx, [orderEvent('OrderPlaced', 'order-1'), orderEvent('OrderPlaced', 'order-1')]),
  )
  await setting.broker.receive(2)
  await consumer.whenCaughtUp()

  expect(await effectsOf(setting.db)).toEqual(await setting.db('outbox').orderBy('seq').pluck('id'))
  expect(await effectsOf(setting.db)).toHaveLength(2)
})

/** Ends a database's connections and lets nobody in, until it is brought back or the scope ends. */
async function takeAway({ url }: TestDatabase): Promise<AsyncDisposable & { bringBack(): Promise<void> }> {
  const name = new URL(url).pathname.slice(1)
  const server = knex({ client: 'pg', connection: testPostgresUrl(), pool: { min: 0, max: 1 } })
  await server.raw('alter database ?? allow_connections false', [name])
  await server.raw('select pg_terminate_backend(pid) from pg_stat_activity where datname = ?', [name])
  const bringBack = async () => {
    await server.raw('alter database ?? allow_connections true', [name])
  }
  return {
    bringBack,
    async [Symbol.asyncDispose]() {
      await bringBack()
      await server.destroy()
    },
  }
}
