/** The consumer over the real Kafka. Each test has a topic and a database of its own. */
import { afterAll, expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { type Consumer, startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers, type Handler } from '../../../src/messaging/consumer/handlers.ts'
import type { ConsumerOptions } from '../../../src/messaging/consumer/options.ts'
import { listDeadLetters } from '../../../src/messaging/dead-letters/list.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { TopicPartition } from '../../../src/messaging/transport.ts'
import { createTestDatabase } from '../../support/database.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { createWitness } from '../kafka/witness.ts'
import { createEffects, effectsOf, fast, writeEffect } from './setting.ts'

const publisher = createKafkaPublisher({ brokers: testBrokers(), clientId: 'consumer-test' })
afterAll(() => publisher.close())

const PARTITIONS = 4

async function createTopic(): Promise<string> {
  const topic = uniqueTopic('orders')
  await publisher.createTopic(topic, { partitionCount: PARTITIONS, replicationFactor: 1 })
  return topic
}

/** Publishes `count` events of each key, a key to a partition; resolves to their ids in the order of each key. */
async function publish(topic: string, keys: readonly string[], count: number): Promise<Map<string, readonly string[]>> {
  const ids = new Map(keys.map((key) => [key, Array.from({ length: count }, () => uuidv7())]))
  await Promise.all(
    Array.from({ length: PARTITIONS }, async (_, partition) => {
      const mine = keys.filter((_key, at) => at % PARTITIONS === partition)
      const records = Array.from({ length: count }, (_empty, n) => n).flatMap((n) =>
        mine.map((key) => ({
          key,
          value: JSON.stringify({ n }),
          headers: {
            event_id: ids.get(key)?.[n] ?? '',
            event_type: 'OrderPlaced',
            occurred_at: new Date().toISOString(),
          },
        })),
      )
      if (records.length > 0)
        await publisher.publish({ topic, partition, records }, { signal: new AbortController().signal })
    }),
  )
  return ids
}

function start(
  topic: string,
  db: Knex,
  handler: Handler = writeEffect,
  { name = topic, ...options }: Partial<ConsumerOptions> = {},
): Consumer {
  return startConsumer({
    name,
    topics: [topic],
    db,
    subscriber: createKafkaSubscriber({
      brokers: testBrokers(),
      clientId: 'consumer-test',
      sessionTimeoutMs: 6_000,
      maxWaitMs: 100,
    }),
    handlers: defineHandlers({ OrderPlaced: handler }),
    ...fast,
    ...options,
  })
}

async function effectsReach(db: Knex, count: number): Promise<void> {
  await eventually(`${count} effects`, async () => (await effectsOf(db)).length >= count, 120_000)
}

/** The ids of each key's effects, in the order in which they committed. */
async function effectsByKey(db: Knex): Promise<Map<string, readonly string[]>> {
  const rows: { aggregate_id: string; event_id: string }[] = await db('effects').orderBy('seq')
  const byKey = Map.groupBy(rows, (row) => row.aggregate_id)
  return new Map([...byKey].map(([key, some]) => [key, some.map((row) => row.event_id)]))
}

const sorted = <T>(map: Map<string, T>) => [...map].sort(([a], [b]) => a.localeCompare(b))
const keysOf = (count: number) => Array.from({ length: count }, (_, at) => `key-${at}`)

test('PC-57: a new group gets the events that were published before it, each effect once and in order', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const topic = await createTopic()
  const published = await publish(topic, keysOf(20), 25)

  await using consumer = start(topic, database.db)
  await consumer.whenCaughtUp()

  expect(sorted(await effectsByKey(database.db))).toEqual(sorted(published))
  expect(consumer.status()).toMatchObject({ ready: true, phase: 'running', problems: [] })
})

test('PC-56: after a clean stop the lag is 0 and nothing is delivered again', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const topic = await createTopic()
  await publish(topic, keysOf(8), 5)
  await using first = start(topic, database.db)
  await first.whenCaughtUp()
  await first.stop()

  await using witness = await createWitness(testBrokers())
  const committed = await Promise.all(
    Array.from({ length: PARTITIONS }, (_, partition) => witness.committed(topic, { topic, partition })),
  )
  let delivered = 0
  await using second = start(topic, database.db, async () => {
    delivered++
  })
  await second.whenCaughtUp()

  expect(committed).toEqual(Array.from({ length: PARTITIONS }, () => 10n))
  expect(delivered).toBe(0)
  expect(await effectsOf(database.db)).toHaveLength(40)
})

test('two groups on one topic each have every effect', async () => {
  await using database = await createTestDatabase()
  await using other = await createTestDatabase()
  await createEffects(database.db)
  await createEffects(other.db)
  const topic = await createTopic()
  const published = await publish(topic, keysOf(6), 10)

  await using one = start(topic, database.db, writeEffect, { name: `${topic}-one` })
  await using two = start(topic, other.db, writeEffect, { name: `${topic}-two` })
  await Promise.all([one.whenCaughtUp(), two.whenCaughtUp()])

  expect(sorted(await effectsByKey(database.db))).toEqual(sorted(published))
  expect(sorted(await effectsByKey(other.db))).toEqual(sorted(published))
})

test('a database restored from before gets again what it has forgotten, although the group has committed beyond', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const topic = await createTopic()
  const published = await publish(topic, keysOf(4), 10)
  await using before = start(topic, db)
  await before.whenCaughtUp()
  await before.stop()

  // As of offset 3 of each partition: the effects, the memory and the stored offsets of then.
  const kept = [...published.values()].flatMap((ids) => ids.slice(0, 3))
  await db('effects').whereNotIn('event_id', kept).delete()
  await db('processed_events').whereNotIn('event_id', kept).delete()
  await db('consumer_offsets').update({ next_offset: 3 })
  await using after = start(topic, db)
  await after.whenCaughtUp()

  expect(sorted(await effectsByKey(db))).toEqual(sorted(published))
})

test('K8: whatever a handler throws, the consumer runs on and the others of its partition flow', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const topic = await createTopic()
  const published = await publish(topic, keysOf(8), 5)
  const kinds = [TypeError, RangeError, ReferenceError, SyntaxError]

  await using consumer = start(topic, database.db, async (trx, event) => {
    const kind = kinds[Number(event.aggregate.id.slice(4))]
    if (kind) throw new kind('no')
    await writeEffect(trx, event)
  })
  await consumer.whenCaughtUp()

  expect([...(await effectsByKey(database.db)).keys()].sort()).toEqual(['key-4', 'key-5', 'key-6', 'key-7'])
  expect((await listDeadLetters(database.db)).map(({ state }) => state).sort()).toEqual([
    ...Array.from({ length: 4 }, () => 'dead'),
    ...Array.from({ length: 16 }, () => 'waiting'),
  ])
  expect(published.size).toBe(8)
})

test('F26: in a storm of members that come and go each effect happens once, in order, and no event is passed over', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const topic = await createTopic()
  const keys = keysOf(16)
  const rounds = 4
  const published = new Map<string, readonly string[]>(keys.map((key) => [key, []]))

  await using steady = start(topic, database.db)
  for (let round = 0; round < rounds; round++) {
    await using passing = start(topic, database.createPool())
    for (const [key, ids] of await publish(topic, keys, 20)) published.set(key, [...(published.get(key) ?? []), ...ids])
    await eventually('it has its share', () => passing.status().partitions.length > 0)
  }
  await effectsReach(database.db, keys.length * 20 * rounds)
  await steady.whenCaughtUp()

  expect(sorted(await effectsByKey(database.db))).toEqual(sorted(published))
  expect(await database.db('held_keys')).toEqual([])
})

test('PC-54: a handler slower than the session timeout keeps its membership, and its effect happens once', async () => {
  await using database = await createTestDatabase()
  await createEffects(database.db)
  const topic = await createTopic()
  await publish(topic, ['slow'], 2)
  let calls = 0
  const began = Promise.withResolvers<void>()

  await using slow = start(topic, database.db, async (trx, event) => {
    calls++
    began.resolve()
    if (calls === 1) await new Promise((resolve) => setTimeout(resolve, 9_000))
    await writeEffect(trx, event)
  })
  await began.promise
  await using other = start(topic, database.createPool(), async (trx, event) => {
    calls++
    await writeEffect(trx, event)
  })
  await effectsReach(database.db, 2)
  await Promise.all([slow.whenCaughtUp(), other.whenCaughtUp()])

  expect(new Set(await effectsOf(database.db)).size).toBe(2)
  expect(await effectsOf(database.db)).toHaveLength(2)
  expect(await database.db('held_keys')).toEqual([])
})

test('PC-21: a tombstone and JSON null arrive as they are, and are each processed once', async () => {
  await using database = await createTestDatabase()
  const topic = await createTopic()
  const where: TopicPartition = { topic, partition: 0 }
  const seen: (string | null)[] = []
  const record = (value: string | null) => ({
    key: 'a',
    value,
    headers: { event_id: uuidv7(), event_type: 'OrderPlaced' },
  })
  await publisher.publish(
    { ...where, records: [record(null), record('null'), record('{}')] },
    { signal: new AbortController().signal },
  )

  await using consumer = start(topic, database.db, async (_trx, event) => {
    seen.push(event.payloadText)
  })
  await consumer.whenCaughtUp()

  expect(seen).toEqual([null, 'null', '{}'])
})
