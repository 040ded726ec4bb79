import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { requestResume } from '../../../src/messaging/dead-letters/requests.ts'
import { laneOf, murmur2, partitionOf } from '../../../src/messaging/outbox/lane.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, idsOn, owns, TOPIC, typesOf, unpublished } from './setting.ts'

const refund = (type: string, id: string) => ({ type, aggregate: { type: 'refund', id }, payload: {} })

/** Keys whose events all go to one lane. */
function keysOfOneLane(count: number): readonly string[] {
  const lane = laneOf(murmur2('first'))
  const keys = ['first']
  while (keys.length < count) {
    const key = randomUUID()
    if (laneOf(murmur2(key)) === lane) keys.push(key)
  }
  return keys
}

test('PC-15 an outage of the broker spends no attempts, is told, and drains by itself afterwards', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  await owns(relay, 64)
  const end = setting.broker.faults.outage()
  await setting.append(...Array.from({ length: 100 }, (_, index) => orderEvent('OrderPlaced', `order-${index}`)))
  await eventually('readiness says so', () => relay.status().problems.some((problem) => problem.includes('is paused')))
  expect(relay.status().ready).toBe(false)
  end()
  await setting.drained()

  expect(idsOn(setting.broker)).toHaveLength(100)
  expect(await setting.db('held_keys')).toEqual([])
  expect(await setting.db('outbox').where('attempts', '>', 0)).toEqual([])
  await eventually('readiness is green again', () => relay.status().ready)
})

test('a partition without leader stops none of the others', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  setting.broker.faults.outage({ topic: TOPIC, partition: 3 })
  const keys = Array.from({ length: 200 }, () => randomUUID())
  await setting.append(...keys.map((key) => orderEvent('OrderPlaced', key)))
  const stuck = keys.filter((key) => partitionOf(murmur2(key), 8) === 3)
  expect(stuck.length).toBeGreaterThan(0)

  await eventually('the others are published', async () => (await unpublished(setting.db)) === stuck.length)
  await eventually('readiness names it', () =>
    relay.status().problems.some((problem) => problem.startsWith('Partition 3 of topic order.events is paused')),
  )
  setting.broker.faults.clear()
  await setting.drained()
  expect(new Set(idsOn(setting.broker)).size).toBe(200)
})

test('a partition whose broker is silent takes no room from the others, however much is pending for it', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ batchSize: 20 })
  setting.broker.faults.hold({ topic: TOPIC, partition: 3 })
  const keys = Array.from({ length: 800 }, () => randomUUID())
  await setting.append(...keys.map((key) => orderEvent('OrderPlaced', key)))
  const slow = keys.filter((key) => partitionOf(murmur2(key), 8) === 3)

  await eventually('the others are published', async () => (await unpublished(setting.db)) === slow.length)
  await eventually('readiness names it', () =>
    relay
      .status()
      .problems.includes('Partition 3 of topic order.events is paused: the broker does not acknowledge (outage)'),
  )
  setting.broker.faults.clear()
  await setting.drained()
  expect(idsOn(setting.broker)).toHaveLength(800)
})

test('PC-02 PC-76 a missing topic pauses alone, by name, and flows once it is there', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ createTopics: null })
  const keys = keysOfOneLane(21)
  await setting.append(refund('RefundMade', keys[0] ?? ''))
  await setting.append(...keys.slice(1).map((key) => orderEvent('OrderPlaced', key)))

  await eventually('the good topic flows', () => idsOn(setting.broker).length === 20)
  await eventually('readiness names the topic', () =>
    relay.status().problems.includes('Topic refund.events is paused: it does not exist (destination)'),
  )
  expect(await setting.db('held_keys')).toEqual([])
  await setting.broker.createTopic('refund.events', { partitionCount: 8, replicationFactor: null })
  await setting.drained()
  expect(typesOf(setting.broker, keys[0] ?? '', 'refund.events')).toEqual(['RefundMade'])
  await eventually('readiness is green again', () => relay.status().ready)
})

test('a forbidden topic pauses alone and spends no attempts', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  const allow = setting.broker.faults.forbid('refund.events')
  await setting.append(refund('RefundMade', 'r1'), orderEvent('OrderPlaced'))

  await eventually('the good topic flows', () => idsOn(setting.broker).length === 1)
  await eventually('readiness names it', () =>
    relay.status().paused.some(({ topic, kind }) => topic === 'refund.events' && kind === 'destination'),
  )
  expect(await setting.db('held_keys')).toEqual([])
  allow()
  await setting.drained()
})

test('PC-07 a topic that has grown is warned of, and no key moves', async () => {
  await using setting = await createRelaySetting()
  await setting.db('topics').insert({ topic: TOPIC, partition_count: 8 })
  await setting.broker.addPartitions(TOPIC, 16)
  const relay = setting.start()
  await setting.append(...Array.from({ length: 50 }, () => orderEvent('OrderPlaced')))
  await setting.drained()

  expect([8, 9, 10, 11, 12, 13, 14, 15].flatMap((partition) => setting.broker.records(TOPIC, partition))).toEqual([])
  await eventually('it is told', () => relay.status().problems.some((problem) => problem.includes('has 16 partitions')))
  expect(relay.status().ready).toBe(true)
})

test('a topic with fewer partitions than recorded is paused', async () => {
  await using setting = await createRelaySetting()
  await setting.db('topics').insert({ topic: TOPIC, partition_count: 12 })
  const relay = setting.start()
  await setting.append(orderEvent('OrderPlaced'))

  await eventually('it is told', () =>
    relay.status().problems.some((problem) => problem.includes('it has 8 partitions and 12 are recorded')),
  )
  expect(relay.status().ready).toBe(false)
  expect(await unpublished(setting.db)).toBe(1)
})

test('PC-03 PC-12 a refused event holds its own key: its followers wait, all others flow', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  const allow = setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  await setting.append(
    orderEvent('Before', 'bad'),
    orderEvent('Refused', 'bad'),
    orderEvent('After', 'bad'),
    ...Array.from({ length: 50 }, (_, index) => orderEvent('OrderPlaced', `good-${index}`)),
  )
  await eventually('all others are published', async () => (await unpublished(setting.db)) === 2)
  await setting.append(orderEvent('Later', 'bad'), orderEvent('OrderPlaced', 'good-0'))
  await eventually('the follower is held', async () => (await setting.db('outbox').where({ held: true })).length === 3)

  expect(typesOf(setting.broker, 'bad')).toEqual(['Before'])
  await eventually('readiness names the key', () =>
    relay.status().problems.some((problem) => problem.startsWith('Key order bad of topic order.events is held')),
  )
  expect(relay.status().ready).toBe(true)
  allow()
  await setting.drained()
  expect(typesOf(setting.broker, 'bad')).toEqual(['Before', 'Refused', 'After', 'Later'])
  await eventually('the key is let go', async () => (await setting.db('held_keys')).length === 0)
})

test('PC-16 refused events at the head of a lane starve nobody, also when more keys are held than a batch has room for', async () => {
  await using setting = await createRelaySetting()
  setting.start({ batchSize: 10 })
  setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  const keys = keysOfOneLane(40)
  await setting.append(...keys.slice(0, 25).map((key) => orderEvent('Refused', key)))
  await setting.append(...keys.slice(25).map((key) => orderEvent('OrderPlaced', key)))

  await eventually('the good ones are published', () => idsOn(setting.broker).length === 15)
})

test('a key is parked after the stated attempts, and goes on in order when an operator resumes it', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ maxAttempts: 2 })
  const allow = setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused', 'INVALID_RECORD')
  await setting.append(orderEvent('Refused', 'bad'), orderEvent('After', 'bad'))
  await eventually(
    'the key is parked',
    async () => (await setting.db('held_keys').where({ state: 'parked' })).length === 1,
  )

  expect(await setting.db('held_keys').first('attempts', 'reason')).toEqual({ attempts: 2, reason: 'INVALID_RECORD' })
  await eventually('readiness says it waits for an operator', () =>
    relay.status().problems.some((problem) => problem.includes('is parked and waits for an operator')),
  )
  allow()
  await setting.append(orderEvent('Later', 'bad'))
  await setting.db('held_keys').update({ request: 'resume' })
  await setting.drained()
  expect(typesOf(setting.broker, 'bad')).toEqual(['Refused', 'After', 'Later'])
})

test('an answer that is lost costs at most a copy, never an event or its order', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  setting.broker.faults.loseAnswers(5)
  const keys = Array.from({ length: 20 }, () => randomUUID())
  for (let step = 0; step < 5; step += 1) await setting.append(...keys.map((key) => orderEvent(`Step${step}`, key)))
  await setting.drained()

  const inOrder = Array.from({ length: 5 }, (_, step) => `Step${step}`)
  for (const key of keys) expect([...new Set(typesOf(setting.broker, key))]).toEqual(inOrder)
})

test('an event that kills its workers is found by sending it alone, and its key is parked', async () => {
  await using setting = await createRelaySetting()
  const lane = laneOf(murmur2('killer'))
  await setting.append(orderEvent('Kills', 'killer'), orderEvent('After', 'killer'))
  await setting.db('lane_leases').where({ lane }).update({ owner: randomUUID(), token: 9, crashes: 5 })
  await setting.db('outbox').where({ event_type: 'Kills' }).update({ attempts: 3 })
  setting.start()

  await eventually(
    'the key is parked',
    async () => (await setting.db('held_keys').where({ state: 'parked' })).length === 1,
  )
  expect(await setting.db('held_keys').first('aggregate_id', 'reason')).toEqual({
    aggregate_id: 'killer',
    reason: 'the relay died each time it sent this event',
  })
  expect(idsOn(setting.broker)).toEqual([])
  await eventually('the lane counts as recovered', async () => {
    const row = await setting.db('lane_leases').where({ lane }).first('crashes')
    return row?.crashes === 0
  })
})

test('Postgres going away for a moment is told, and the relay goes on by itself', async () => {
  await using setting = await createRelaySetting()
  const pool = setting.database.createPool()
  const relay = setting.start({ db: pool })
  await owns(relay, 64)
  for (let kill = 0; kill < 10; kill += 1) {
    await setting.db.raw(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
    )
    await setting.append(orderEvent('OrderPlaced', `order-${kill}`))
  }
  await setting.drained()

  expect(new Set(idsOn(setting.broker)).size).toBe(10)
  await eventually('it is ready again', () => relay.status().ready)
})

test.each<[string, (type: string) => string]>([
  [
    'throws',
    () => {
      throw new RangeError('no such type')
    },
  ],
  ['names nothing', () => undefined as unknown as string],
])('an event with a topic of its own is held and let go by a relay whose topic rule %s', async (_, topicFor) => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  const letters = `${TOPIC}.summary.dlq`
  await setting.append(refund('First', 'bad'), refund('After', 'bad'), refund('Elsewhere', 'bad'))
  await db('outbox').whereNot({ event_type: 'Elsewhere' }).update({ topic: letters })
  const allow = broker.faults.refuseRecords(({ headers }) => headers.event_type === 'First')
  const relay = setting.start({ topicFor, maxAttempts: 1 })
  await eventually('the key is told as parked', () =>
    relay.status().heldKeys.some(({ state, topic }) => state === 'parked' && topic === letters),
  )
  await eventually('its later event is held too', async () => (await db('outbox').where({ held: true })).length === 2)
  allow()
  await requestResume(db, { holder: 'relay', topic: letters, aggregateType: 'refund', aggregateId: 'bad' })
  await eventually('the key is let go', async () => (await db('held_keys')).length === 0)

  expect(typesOf(broker, 'bad', letters)).toEqual(['First', 'After'])
  expect(relay.status().problems.filter((problem) => problem.includes('database'))).toEqual([])
  expect(await db('outbox').where({ event_type: 'Elsewhere' })).toMatchObject([{ published_at: null, held: false }])
})
