/** A dead letter's way to its own topic: from parking, by a row of the outbox, through the relay to Kafka. */
import { randomBytes, randomUUID } from 'node:crypto'
import { afterAll, expect, test } from '@jest/globals'
import { startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers } from '../../../src/messaging/consumer/handlers.ts'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { createWitness, type Witness } from '../kafka/witness.ts'
import { createRelaySetting, idsOn, owns, TOPIC, unpublished } from '../relay/setting.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createEffects, effectsOf, fast, joinOn, writeEffect } from './setting.ts'

const publisher = createKafkaPublisher({ brokers: testBrokers(), clientId: 'dead-letters' })
afterAll(() => publisher.close())

/** All records of a topic with this many partitions, whatever their partition. */
async function recordsOf(witness: Witness, topic: string, partitionCount: number) {
  const partitions = Array.from({ length: partitionCount }, (_, partition) => partition)
  return (await Promise.all(partitions.map((partition) => witness.read({ topic, partition })))).flat()
}

test('PC-61 a parked event is on the dead-letter topic with key, value and place, once, and the live topic flows on', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await createEffects(db)
  const topic = uniqueTopic('order.events')
  const group = uniqueTopic('summary')
  await using relay = startRelay({
    db,
    publisher,
    topicFor: () => topic,
    createTopics: { partitionCount: 2, replicationFactor: 1 },
    pollIntervalMs: 200,
    leaseMs: 1_000,
  })
  await using consumer = startConsumer({
    name: group,
    topics: [topic],
    db,
    subscriber: createKafkaSubscriber({ brokers: testBrokers(), clientId: 'dead-letters', maxWaitMs: 100 }),
    aggregateTypeOf: () => 'order',
    handlers: defineHandlers({
      OrderPlaced: async (trx, event) => {
        if (event.aggregate.id === 'bad') throw new RangeError('refused')
        await writeEffect(trx, event)
      },
    }),
    ...fast,
    maxAttempts: 2,
  })

  const [bad] = await inTransaction(
    db,
    async (trx) =>
      await appendToOutbox(trx, [
        orderEvent('OrderPlaced', 'bad', { payload: { total: 10, name: 'Zoë' }, headers: { tenant: 'blue' } }),
        orderEvent('OrderPlaced', 'bad'),
        orderEvent('OrderPlaced', 'good'),
      ]),
  )
  await eventually('the others have their effect', async () => (await effectsOf(db)).length === 1)
  await eventually('the dead letter is published', async () => {
    const letters = await db('outbox').whereNotNull('topic').whereNotNull('published_at')
    return letters.length === 1
  })
  await inTransaction(db, async (trx) => await appendToOutbox(trx, [orderEvent('OrderPlaced', 'good')]))
  await eventually('the live topic flows on', async () => (await effectsOf(db)).length === 2)
  await consumer.stop()
  await relay.stop()

  await using witness = await createWitness(testBrokers())
  const letters = await recordsOf(witness, `${topic}.${group}.dlq`, 2)
  const live = await recordsOf(witness, topic, 2)
  const original = live.find(({ headers }) => headers.event_id === bad?.id)
  expect(letters).toHaveLength(1)
  expect(letters[0]).toMatchObject({ key: 'bad', value: original?.value })
  expect(letters[0]?.headers).toMatchObject({
    event_type: 'OrderPlaced',
    original_event_id: bad?.id,
    original_topic: topic,
    original_offset: String(original?.offset),
    dead_letter_reason: 'RangeError',
    dead_letter_group: group,
  })
  expect(letters[0]?.headers.event_id).not.toBe(bad?.id)
  expect(live).toHaveLength(4)
})

test('a record that is none of ours is on the dead-letter topic too, its bytes in base64, under its place as key', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const topic = uniqueTopic('order.events')
  const group = uniqueTopic('summary')
  const bytes = Buffer.from([0, 255, 1, 254])
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: 1 })
  await publisher.publish(
    { topic, partition: 0, records: [{ key: 'k', value: bytes, headers: { secret: 'x' } }] },
    { signal: new AbortController().signal },
  )
  await using relay = startRelay({
    db,
    publisher,
    createTopics: { partitionCount: 1, replicationFactor: 1 },
    pollIntervalMs: 200,
    leaseMs: 1_000,
  })
  await using consumer = startConsumer({
    name: group,
    topics: [topic],
    db,
    subscriber: createKafkaSubscriber({ brokers: testBrokers(), clientId: 'dead-letters', maxWaitMs: 100 }),
    handlers: defineHandlers({ OrderPlaced: writeEffect }),
    ...fast,
  })

  await eventually('it is published', async () => (await db('outbox').whereNotNull('published_at')).length === 1)
  await consumer.stop()
  await relay.stop()

  await using witness = await createWitness(testBrokers())
  const [letter] = await recordsOf(witness, `${topic}.${group}.dlq`, 1)
  expect(letter?.key).toBe(`${topic}/0/0`)
  expect(JSON.parse(letter?.value?.toString() ?? '')).toBe(bytes.toString('base64'))
  expect(letter?.headers).toMatchObject({
    event_type: 'Unreadable',
    payload_encoding: 'base64',
    dead_letter_reason: 'NO_EVENT_ID',
  })
})

test.each(['missing', 'forbidden'])('a dead-letter topic that is %s holds up none of the live topic', async (how) => {
  await using setting = await createRelaySetting()
  const letters = `${TOPIC}.summary.dlq`
  const make = async () => await setting.broker.createTopic(letters, { partitionCount: 8, replicationFactor: null })
  if (how === 'forbidden') {
    await make()
    setting.broker.faults.forbid(letters)
  }
  const { publisher, triedCount } = countTries(setting.broker.createPublisher(), letters)
  const relay = setting.start({ createTopics: null, publisher })
  await owns(relay, 64)
  await setting.append(...Array.from({ length: 64 }, (_, index) => orderEvent('OrderPlaced', `order-${index}`)))
  await setting.drained()
  await setting.append(...Array.from({ length: 64 }, (_, index) => orderEvent('OrderPlaced', `order-${index}`)))
  await inTransaction(setting.db, async (trx) => {
    const [letter] = await appendToOutbox(trx, [orderEvent('OrderPlaced', 'order-0')])
    await trx('outbox').where({ id: letter?.id }).update({ topic: letters })
  })

  await eventually('the topic rests', () => relay.status().paused.some(({ topic }) => topic === letters))
  // While it rests, and not when it is tried again: the pauses grow, so that a busy machine is quick enough for one of them.
  let liveCount = 128
  for (let resting = 0; resting < 5; ) {
    const before = triedCount()
    await setting.append(orderEvent('OrderPlaced', 'order-0'), orderEvent('OrderPlaced', randomUUID()))
    liveCount += 2
    await eventually('the live topic flows', async () => (await unpublished(setting.db)) === 1)
    if (triedCount() === before) resting += 1
    expect(liveCount).toBeLessThan(500)
  }
  expect(await setting.db('held_keys')).toEqual([])

  setting.broker.faults.clear()
  if (how === 'missing') await make()
  await setting.drained()
  expect(idsOn(setting.broker, letters)).toHaveLength(1)
  expect(idsOn(setting.broker)).toHaveLength(liveCount)
})

test.each([
  ['key', { key: randomBytes(1_950).toString('base64') }],
  ['aggregate type', { headers: { aggregate_type: randomBytes(1_950).toString('base64') } }],
])('a dead letter whose %s no append takes has one that the relay can hold when it is refused', async (_, given) => {
  await using relaying = await createRelaySetting()
  const long = recordOf(0, given)
  await createEffects(relaying.db)
  await using setting = joinOn(relaying.database, () => {
    throw new RangeError('no')
  })
  await setting.subscriber.deliverAll([long])
  expect(await listHeldKeys(setting.db)).toMatchObject([{ holder: 'summary', state: 'parked' }])

  const [letter] = await relaying.db('outbox').select('aggregate_id', 'aggregate_type')
  expect(Buffer.byteLength(letter.aggregate_id)).toBeLessThanOrEqual(1_024)
  expect(letter.aggregate_type.length).toBeLessThanOrEqual(200)
  relaying.broker.faults.refuseRecords(() => true, 'MESSAGE_TOO_LARGE')
  relaying.start({ maxAttempts: 1 })
  await eventually('the relay parks it', async () => {
    const held = await listHeldKeys(setting.db)
    return held.some(({ holder, state }) => holder === 'relay' && state === 'parked')
  })
})

/** A publisher that counts how often it is asked for `topic`. */
function countTries(publisher: Publisher, topic: string): { publisher: Publisher; triedCount: () => number } {
  let tried = 0
  const note = (asked: string) => {
    if (asked === topic) tried += 1
  }
  return {
    triedCount: () => tried,
    publisher: {
      ...publisher,
      describeTopic: async (asked) => {
        note(asked)
        return await publisher.describeTopic(asked)
      },
      publish: async (batch, options) => {
        note(batch.topic)
        return await publisher.publish(batch, options)
      },
    },
  }
}
