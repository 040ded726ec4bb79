/** Partitions that were added to a topic of a real Kafka come into use under load, with relay threads and a consumer group. */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers } from '../../../src/messaging/consumer/handlers.ts'
import { countLag, createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { adoptPartitions } from '../../../src/messaging/relay/adopt-partitions.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import type { TestThreadData } from '../../support/relay/thread-data.ts'
import { createEffects, writeEffect } from '../consumer/setting.ts'
import { createWitness } from '../kafka/witness.ts'
import { owns } from './setting.ts'

const brokers = testBrokers()
const clientId = 'adopt-test'
const KEYS = Array.from({ length: 30 }, (_, index) => `order-${index}`)

const publisher = createKafkaPublisher({ brokers, clientId })
afterAll(() => publisher.close())

test('F23 two relay threads and a consumer group go over to new partitions: each effect once and in order', async () => {
  await using database = await createTestDatabase()
  await using witness = await createWitness(brokers)
  const { db } = database
  await createEffects(db)
  const topic = uniqueTopic('grows')
  const data: TestThreadData = { databaseUrl: database.url, brokers, topic }
  const entry = new URL('../../support/relay/thread.ts', import.meta.url)
  await using relay = startRelay({ db, threads: { entry, count: 2, workerData: () => data } })
  await using consumer = startConsumer({
    name: topic,
    topics: [topic],
    db: database.createPool(),
    subscriber: createKafkaSubscriber({ brokers, clientId, maxWaitMs: 100 }),
    handlers: defineHandlers({ OrderPlaced: writeEffect }),
  })
  await owns(relay, 64)
  let rounds = 0
  const done = new AbortController()
  const load = (async () => {
    while (!done.signal.aborted) {
      await inTransaction(db, (trx) =>
        appendToOutbox(
          trx,
          KEYS.map((key) => orderEvent('OrderPlaced', key)),
        ),
      )
      rounds += 1
      // No more than a consumer of single effects can follow.
      await sleep(40)
    }
  })()
  try {
    await eventually('the load', async () => (await effectCount(db)) > 100)
    await witness.admin.createPartitions({ topicPartitions: [{ topic, count: 12 }] })
    await eventually('the broker has them', async () => (await publisher.describeTopic(topic))?.partitionCount === 12)

    const lag = () => countLag({ brokers, clientId, topic, groups: [topic] })
    expect(await adoptPartitions({ db, publisher, topic, lag })).toEqual({ before: 8, after: 12 })
    const then = rounds
    await eventually('mutations go on', () => rounds > then + 3)
  } finally {
    done.abort()
    await load
  }
  await eventually('every effect', async () => (await effectCount(db)) >= rounds * KEYS.length)

  expect(await idsByKey(db, 'effects', 'event_id')).toEqual(await idsByKey(db, 'outbox', 'id'))
  const added = await Promise.all([8, 9, 10, 11].map((partition) => witness.read({ topic, partition })))
  expect(added.flat().length).toBeGreaterThan(0)
  expect(consumer.status().ready).toBe(true)
})

async function effectCount(db: Knex): Promise<number> {
  const row = await db('effects').count<{ count: string }[]>('* as count')
  return Number(row[0]?.count)
}

/** The ids of each key, in the order in which they were written. */
async function idsByKey(db: Knex, table: string, column: string): Promise<Record<string, readonly string[]>> {
  const rows: Record<string, string>[] = await db(table).orderBy('seq')
  const byKey = Map.groupBy(rows, ({ aggregate_id = '' }) => aggregate_id)
  return Object.fromEntries([...byKey].map(([key, some]) => [key, some.map((row) => row[column] ?? '')]))
}
