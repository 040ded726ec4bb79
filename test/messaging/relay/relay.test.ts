import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, idsOn, owns, quick, TOPIC, typesOf } from './setting.ts'

test('publishes nothing of a transaction that rolled back', async () => {
  await using setting = await createRelaySetting()
  setting.start()

  const failing = inTransaction(setting.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('OrderPlaced')])
    throw new Error('roll back')
  })
  await expect(failing).rejects.toThrow('roll back')
  await setting.append(orderEvent('OrderCancelled'))

  const [first] = await setting.broker.receive(1)
  expect(first?.headers.event_type).toBe('OrderCancelled')
})

test('a record has the key, value and headers of its event', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(
    orderEvent('OrderPlaced', 'order-1', {
      version: 7,
      payload: { total: 10 },
      occurredAt: new Date('2026-03-29T01:30:00.123Z'),
      headers: { tenant: 'blue' },
    }),
  )

  const [record] = await setting.broker.receive(1)
  expect(record?.key?.toString()).toBe('order-1')
  expect(record?.value?.toString()).toBe('{"total": 10}')
  expect(record?.headers).toEqual({
    event_id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/),
    event_type: 'OrderPlaced',
    aggregate_version: '7',
    occurred_at: '2026-03-29T01:30:00.123Z',
    tenant: 'blue',
  })
})

test('PC-22 events of one mutation keep their order', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  const types = Array.from({ length: 20 }, (_, index) => `Step${index}`)
  await setting.append(...types.map((type) => orderEvent(type, 'order-1')))

  await setting.broker.receive(20)
  expect(typesOf(setting.broker, 'order-1')).toEqual(types)
})

test('PC-21 a tombstone is a record without value, and JSON null is a value', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(
    orderEvent('Null', 'order-1', { payload: null }),
    orderEvent('JsonNull', 'order-1', { payload: { rawJson: 'null' } }),
    orderEvent('Empty', 'order-1', { payload: '' }),
    orderEvent('Object', 'order-1', { payload: {} }),
    orderEvent('Array', 'order-1', { payload: [] }),
  )

  const records = await setting.broker.receive(5)
  expect(records.map(({ value }) => value?.toString() ?? null)).toEqual([null, 'null', '""', '{}', '[]'])
  expect(records[0]?.headers.event_id).toBeDefined()
})

test('PC-19 PC-20 two relays publish each event once, and each aggregate in order', async () => {
  await using setting = await createRelaySetting()
  const first = setting.start({ batchSize: 50 })
  const second = setting.start({ batchSize: 50 })
  await Promise.all([owns(first, 32), owns(second, 32)])
  const keys = Array.from({ length: 40 }, () => randomUUID())
  for (let step = 0; step < 10; step += 1) await setting.append(...keys.map((key) => orderEvent(`Step${step}`, key)))
  await setting.drained()

  expect(idsOn(setting.broker)).toHaveLength(400)
  expect(new Set(idsOn(setting.broker)).size).toBe(400)
  const inOrder = Array.from({ length: 10 }, (_, step) => `Step${step}`)
  for (const key of keys) expect(typesOf(setting.broker, key)).toEqual(inOrder)
  await eventually('both have reported', () => first.status().publishedCount + second.status().publishedCount === 400)
  expect(Math.min(first.status().publishedCount, second.status().publishedCount)).toBeGreaterThan(0)
})

test('PC-29 ten thousand events of one transaction are published once each', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  const keys = Array.from({ length: 100 }, () => randomUUID())
  await setting.append(
    ...Array.from({ length: 10_000 }, (_, index) => orderEvent(`Step${Math.floor(index / 100)}`, keys[index % 100])),
  )
  await setting.drained()

  expect(new Set(idsOn(setting.broker)).size).toBe(10_000)
  expect(idsOn(setting.broker)).toHaveLength(10_000)
  const inOrder = Array.from({ length: 100 }, (_, step) => `Step${step}`)
  for (const key of keys) expect(typesOf(setting.broker, key)).toEqual(inOrder)
})

test('a stop settles what is in flight, gives every lane back and leaves no worker behind', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  await owns(relay, 64)
  const hold = setting.broker.faults.hold()
  await setting.append(orderEvent('OrderPlaced'))
  await hold.met
  const stopping = relay.stop()
  hold.release()
  await stopping

  expect(await setting.db('outbox').whereNull('published_at')).toEqual([])
  expect(await setting.db('lane_leases').whereNotNull('owner')).toEqual([])
  expect(await setting.db('relay_workers')).toEqual([])
})

test('a stopped relay leaves its lanes to the other at once', async () => {
  await using setting = await createRelaySetting()
  const first = setting.start()
  const second = setting.start()
  await Promise.all([owns(first, 32), owns(second, 32)])
  await first.stop()

  await owns(second, 64)
  await setting.append(...Array.from({ length: 64 }, () => orderEvent('OrderPlaced')))
  await setting.drained()
})

test('PC-24 the lanes of a worker that vanished are taken over once its lease has ended', async () => {
  await using setting = await createRelaySetting()
  const vanished = randomUUID()
  await setting.db('relay_workers').insert({
    owner: vanished,
    expires_at: setting.db.raw(`clock_timestamp() + interval '1 hour'`),
  })
  await setting.db('lane_leases').update({ owner: vanished, token: 5 })
  await setting.append(orderEvent('OrderPlaced'))
  const relay = setting.start()

  await eventually('the relay has seen the other', () => relay.status().ready)
  expect(relay.status().lanesOwned).toBe(0)
  await setting
    .db('relay_workers')
    .where({ owner: vanished })
    .update({ expires_at: setting.db.raw('clock_timestamp()') })
  await owns(relay, 64)
  await setting.drained()
  const tokens = await setting.db('lane_leases').distinct('token')
  expect(tokens.map(({ token }) => Number(token))).toEqual([6])
})

test('PC-14 PC-17 a worker that lost its lane during a send marks nothing', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  await owns(relay, 64)
  const hold = setting.broker.faults.hold()
  await setting.append(orderEvent('OrderPlaced', 'order-1'))
  await hold.met
  const thief = randomUUID()
  await setting.db('relay_workers').insert({
    owner: thief,
    expires_at: setting.db.raw(`clock_timestamp() + interval '1 hour'`),
  })
  await setting.db('lane_leases').update({ owner: thief, token: setting.db.raw('token + 1') })
  hold.release()
  await setting.broker.receive(1)
  // The thief lives on, so the relay gets none of them back.
  await eventually('the loss is noticed', () => relay.status().lanesOwned === 0)

  expect(await setting.db('outbox').whereNull('published_at')).toHaveLength(1)
  await setting.db('relay_workers').where({ owner: thief }).delete()
  await owns(relay, 64)
  await setting.drained()
  expect(typesOf(setting.broker, 'order-1')).toEqual(['OrderPlaced', 'OrderPlaced'])
  expect(new Set(idsOn(setting.broker)).size).toBe(1)
})

test('PC-13 no transaction is open while the broker is awaited', async () => {
  await using setting = await createRelaySetting()
  const watcher = setting.database.createPool()
  const relay = setting.start()
  const hold = setting.broker.faults.hold()
  await setting.append(orderEvent('OrderPlaced'))
  await hold.met
  const { rows: sent } = await watcher.raw<{ rows: { at: Date }[] }>('select clock_timestamp() as at')

  // Renewals have short ones of their own; one that was open when the send began would stay until it is answered.
  await eventually('every transaction from before has ended', async () => {
    const open = await watcher('pg_stat_activity')
      .whereRaw('datname = current_database() and pid <> pg_backend_pid() and xact_start < ?', [sent[0]?.at ?? null])
      .select('pid')
    return open.length === 0
  })
  expect(relay.status().publishedCount).toBe(0)
  hold.release()
  await setting.broker.receive(1)
})

test('PC-41 a wake-up from another process publishes at once, long before the poll', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ pollIntervalMs: 600_000, leaseMs: 1_800_000 })
  await owns(relay, 64)
  await setting.append(orderEvent('OrderPlaced'))
  await setting.drained()
  // Pending once more, and nothing in this process tells the relay.
  await setting.db('outbox').update({ published_at: null })

  await eventually('it hears', async () => {
    await setting.db.raw(`select pg_notify('outbox_wake', 'ffffffffffffffff')`)
    return idsOn(setting.broker).length === 2
  })
})

test('an idle relay asks the database at most twice a second', async () => {
  await using setting = await createRelaySetting()
  const pool = setting.database.createPool()
  await using relay = startRelay({ db: pool, publisher: setting.broker.createPublisher() })
  await owns(relay, 64)
  await setting.db.raw('select pg_sleep(1.5)')
  let queries = 0
  pool.on('query', () => {
    queries += 1
  })
  const from = performance.now()
  await setting.db.raw('select pg_sleep(5)')
  // On a busy machine the pause is longer, and so are those of the relay.
  const seconds = (performance.now() - from) / 1_000

  expect(queries).toBeGreaterThan(0)
  expect(queries).toBeLessThanOrEqual(2 * seconds + 2)
})

test('refuses options that cannot work, by name', async () => {
  await using setting = await createRelaySetting()
  const publisher = setting.broker.createPublisher()

  expect(() => startRelay({ db: setting.db, publisher, batchSize: 0 })).toThrow('Option batchSize must be a positive')
  expect(() => startRelay({ db: setting.db, publisher, ...quick, leaseMs: 150 })).toThrow('Option leaseMs must be at')
  expect(() => startRelay({ db: setting.db, threads: { entry: new URL(import.meta.url), count: 0 } })).toThrow(
    'Option threads.count must be a whole number from 1 to 64',
  )
  const { db } = setting
  // @ts-expect-error The types refuse it too.
  expect(() => startRelay({ db })).toThrow('Option publisher must be given, or threads that have one each')
  const none = { partitionCount: 0, replicationFactor: null }
  expect(() => startRelay({ db, publisher, createTopics: none })).toThrow(
    'Option createTopics.partitionCount must be a positive whole number; it is 0',
  )
  // @ts-expect-error The types refuse it too.
  expect(() => startRelay({ db, publisher, createTopics: { partitions: 4, replicationFactor: 1 } })).toThrow(
    'Option createTopics.partitions must be left out: there is no such option, only partitionCount, replicationFactor',
  )
})

test('with threads, an option that the thread has to be given is refused and not ignored', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  const threads = { entry: new URL(import.meta.url), count: 1 }
  const rule = "must be given to runRelayWorker in the thread's entry file, not to startRelay; it is"

  // @ts-expect-error The types refuse it too.
  expect(() => startRelay({ db, threads, topicFor: (type) => type })).toThrow(`Option topicFor ${rule} a function`)
  // @ts-expect-error The types refuse it too.
  expect(() => startRelay({ db, threads, maxAttempts: 3 })).toThrow(`Option maxAttempts ${rule} 3`)
})

test('events of a topic that does not exist yet make it at first use', async () => {
  await using setting = await createRelaySetting()
  setting.start({ createTopics: { partitionCount: 3, replicationFactor: null } })
  await setting.append(orderEvent('PaymentTaken', 'payment-1', {}))
  await setting.append({ type: 'PaymentTaken', aggregate: { type: 'payment', id: 'p1' }, payload: {} })
  await setting.drained()

  expect(await setting.broker.describeTopic('payment.events')).toMatchObject({ partitionCount: 3 })
  expect(await setting.db('topics').orderBy('topic').select('topic', 'partition_count')).toEqual([
    { topic: TOPIC, partition_count: 8 },
    { topic: 'payment.events', partition_count: 3 },
  ])
})
