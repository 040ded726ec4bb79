/** A relay thread whose event loop is blocked for longer than its lease lasts: what it knows when it goes on is of the past. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers } from '../../../src/messaging/consumer/handlers.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { BLOCKED, type TestThreadData } from '../../support/relay/thread-data.ts'
import { createEffects, writeEffect } from '../consumer/setting.ts'
import { createWitness, type Witness } from '../kafka/witness.ts'
import { owns } from './setting.ts'

const KEYS = Array.from({ length: 12 }, (_, index) => `order-${index}`)

let witness: Witness
beforeAll(async () => {
  witness = await createWitness(testBrokers())
})
afterAll(() => witness.close())

test('F12 a thread that is blocked beyond its lease marks nothing when it goes on; order and effects are right', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const topic = uniqueTopic('blocked')
  const blocked = new Int32Array(new SharedArrayBuffer(8))
  const data: TestThreadData = { databaseUrl: database.url, brokers: testBrokers(), topic, blocked }
  await using first = startRelay({
    db,
    // Longer than a machine is busy: no lease ends by itself. And far below the thirty polls after which a thread is replaced.
    pollIntervalMs: 1_000,
    leaseMs: 8_000,
    threads: { entry: new URL('../../support/relay/thread.ts', import.meta.url), count: 1, workerData: () => data },
  })
  await owns(first, 64)
  await append(db, 1)
  await append(db, 2)
  await eventually('all is published', async () => (await pendingIds(db)).length === 0)

  // The broker has the third events, and before they are marked the thread is busy with something else.
  Atomics.store(blocked, BLOCKED.word, BLOCKED.next)
  await append(db, 3)
  await eventually('the thread is blocked', () => Atomics.load(blocked, BLOCKED.word) === BLOCKED.now)
  await using successor = openGated()
  await using second = startRelay({ db, publisher: successor, topicFor: () => topic, pollIntervalMs: 200 })
  await owns(second, 64)
  const pending = await pendingIds(db)
  Atomics.store(blocked, BLOCKED.word, BLOCKED.over)
  await eventually('it finds its lanes lost', () => Atomics.load(blocked, BLOCKED.losses) > 0)

  // What it had in hand is marked by the successor alone, which has sent nothing yet.
  expect(pending.length).toBeGreaterThan(0)
  expect(await pendingIds(db)).toEqual(pending)
  successor.open()
  await append(db, 4)
  await eventually('all is published', async () => (await pendingIds(db)).length === 0)
  // It is none the worse for it: what it gets from now on it publishes.
  await eventually('both have lanes', () => first.status().lanesOwned === 32)
  await second.stop()
  await append(db, 5)
  await eventually('all is published', async () => (await pendingIds(db)).length === 0)

  const versions = await versionsByKey(topic)
  for (const key of KEYS) expect([key, [...new Set(versions.get(key))]]).toEqual([key, [1, 2, 3, 4, 5]])
  // Nothing but what was in hand is there twice.
  for (const key of KEYS) expect(versions.get(key)?.filter((version) => version !== 3)).toEqual([1, 2, 4, 5])
  await using consumer = startConsumer({
    name: topic,
    topics: [topic],
    db,
    subscriber: createKafkaSubscriber({ brokers: testBrokers(), clientId: 'blocked-test', maxWaitMs: 100 }),
    handlers: defineHandlers({ OrderPlaced: writeEffect }),
  })
  await consumer.whenCaughtUp()
  expect(await effectsByKey(db)).toEqual(await appendedByKey(db))
})

async function append(db: Knex, version: number): Promise<void> {
  await inTransaction(db, async (trx) => {
    await appendToOutbox(
      trx,
      KEYS.map((key) => orderEvent('OrderPlaced', key, { version })),
    )
  })
}

async function pendingIds(db: Knex): Promise<readonly string[]> {
  return await db('outbox').whereNull('published_at').orderBy('seq').pluck('id')
}

/** A publisher that sends nothing before its gate is open. */
function openGated(): Publisher & AsyncDisposable & { open(): void } {
  const publisher = createKafkaPublisher({ brokers: testBrokers(), clientId: 'successor' })
  const gate = Promise.withResolvers<void>()
  return {
    ...publisher,
    open: () => gate.resolve(),
    publish: async (batch, options) => {
      await gate.promise
      return await publisher.publish(batch, options)
    },
    [Symbol.asyncDispose]: () => publisher.close(),
  }
}

/** The versions on the topic, by key and in the order in which they stand there. */
async function versionsByKey(topic: string): Promise<Map<string, readonly number[]>> {
  const partitions = [0, 1, 2, 3, 4, 5, 6, 7]
  const records = (await Promise.all(partitions.map((partition) => witness.read({ topic, partition })))).flat()
  const byKey = Map.groupBy(records, ({ key }) => key)
  return new Map([...byKey].map(([key, some]) => [key, some.map(({ headers }) => Number(headers.aggregate_version))]))
}

/** The ids of each key's effects, in the order in which they committed. */
async function effectsByKey(db: Knex): Promise<Record<string, readonly string[]>> {
  return grouped(await db('effects').orderBy('seq').select('aggregate_id', 'event_id as id'))
}

/** The ids of each key's events, in the order in which they were appended. */
async function appendedByKey(db: Knex): Promise<Record<string, readonly string[]>> {
  return grouped(await db('outbox').orderBy('seq').select('aggregate_id', 'id'))
}

function grouped(rows: readonly { aggregate_id: string; id: string }[]): Record<string, readonly string[]> {
  const byKey = Map.groupBy(rows, ({ aggregate_id }) => aggregate_id)
  return Object.fromEntries([...byKey].map(([key, some]) => [key, some.map(({ id }) => id)]))
}
