/** Partitions that were added to a topic come into use: no key is out of order, nothing is lost, and nobody else waits. */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers } from '../../../src/messaging/consumer/handlers.ts'
import { requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { InvalidOptionError } from '../../../src/messaging/errors.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { type AdoptPartitionsOptions, adoptPartitions } from '../../../src/messaging/relay/adopt-partitions.ts'
import { lockLease } from '../../../src/messaging/relay/lease-queries.ts'
import { createPostgresDirectory, createPostgresSource } from '../../../src/messaging/relay/postgres-source.ts'
import { beginAdoption, extendAdoption, selectTopic, switchCount } from '../../../src/messaging/relay/topic-queries.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createEffects, effectsOf, writeEffect } from '../consumer/setting.ts'
import { createRelaySetting, idsOn, owns, type RelaySetting, TOPIC, typesOf, unpublished } from './setting.ts'

const noLag = async () => 0n

/** Adds partitions to the topic, and adopts them. */
async function growTo(
  { broker, db }: RelaySetting,
  count: number,
  options: Partial<AdoptPartitionsOptions> = {},
): Promise<{ before: number; after: number }> {
  await broker.addPartitions(TOPIC, count)
  return await adoptPartitions({ db, publisher: broker, topic: TOPIC, lag: noLag, ...options })
}

/** Records of the group's that are not committed yet. */
function lagOf({ broker }: RelaySetting, groupId: string): () => Promise<bigint> {
  return async () =>
    Array.from({ length: 12 }, (_, partition) => partition).reduce((sum, partition) => {
      const committed = broker.committed(groupId, { topic: TOPIC, partition }) ?? 0n
      return sum + BigInt(broker.records(TOPIC, partition).length) - committed
    }, 0n)
}

/** Records that the consumers have not processed, and how often they were asked for. */
function slowConsumers() {
  let behind = 1n
  let asked = 0
  return {
    lag: async () => {
      asked += 1
      return behind
    },
    /** Resolves once it was asked for some more times: whatever should not happen meanwhile has had its time. */
    async askedOften() {
      const then = asked
      await eventually('the consumers are asked for', () => asked >= then + 4)
    },
    catchUp() {
      behind = 0n
    },
  }
}

/** Resolves once a relay has renewed its leases for some more times. */
async function renewals({ db }: RelaySetting, count: number): Promise<void> {
  const seen = new Set<string>()
  await eventually('renewals', async () => {
    for (const { until } of await db('relay_workers').select(db.raw('expires_at::text as until'))) seen.add(until)
    return seen.size > count
  })
}

/** Which partitions have a key's records, in the order of their storing. */
function placesOf({ broker }: RelaySetting, key: string): readonly number[] {
  const records = broker.records(TOPIC).filter((record) => record.key === key)
  return records.toSorted((a, b) => Number(a.timestamp) - Number(b.timestamp)).map(({ partition }) => partition)
}

/** A worker whose lease has ended after it had read an event, which it may have sent; no other runs. */
async function expiredWithOneRead(setting: RelaySetting) {
  const { db } = setting
  const relay = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  await relay.stop()
  await setting.append(orderEvent('Sent', 'order-1'))
  const [owner, lane] = [randomUUID(), (await db('outbox').where({ event_type: 'Sent' }).first('lane')).lane as number]
  const directory = createPostgresDirectory(db)
  await directory.renew([owner], 60_000)
  const [grant] = await directory.claim(owner, [lane])
  if (!grant) throw new Error('The lane is free')
  const source = createPostgresSource({ db, topicFor: defaultTopicFor('') })
  const ownership = { owner, leases: [grant] }
  const request = { lanes: [{ lane, limit: 10 }], maxBytesPerLane: 1_000, inHand: [], exclusions: [] }
  const events = await source.read(ownership, request)
  expect(events).toHaveLength(1)
  await db('relay_workers').update({ expires_at: db.raw('clock_timestamp()') })
  return { owner, lane, directory, source, ownership, events }
}

test('two relays under load go over to the new partitions: each effect once and in order, and mutations go on', async () => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  await createEffects(db)
  const relays = [setting.start(), setting.start()]
  await Promise.all(relays.map((relay) => owns(relay, 32)))
  await using consumer = startConsumer({
    name: 'summary',
    topics: [TOPIC],
    db: setting.database.createPool(),
    subscriber: broker.createSubscriber(),
    handlers: defineHandlers({ OrderPlaced: writeEffect }),
  })
  const keys = Array.from({ length: 40 }, () => randomUUID())
  let rounds = 0
  const done = new AbortController()
  const load = (async () => {
    while (!done.signal.aborted) {
      await setting.append(...keys.map((key) => orderEvent('OrderPlaced', key)))
      rounds += 1
    }
  })()
  const adopted = await (async () => {
    try {
      await eventually('the load', () => rounds >= 5)
      const result = await growTo(setting, 12, { lag: lagOf(setting, 'summary') })
      const roundsThen = rounds
      await eventually('mutations go on', () => rounds >= roundsThen + 5)
      return result
    } finally {
      done.abort()
      await load
    }
  })()
  await setting.drained()
  await eventually('every effect', async () => (await effectsOf(db)).length >= rounds * keys.length)

  expect(adopted).toEqual({ before: 8, after: 12 })
  expect(await selectTopic(db, TOPIC)).toEqual({ partitionCount: 12, earlierCounts: [8], adoption: null })
  expect(idsOn(broker)).toHaveLength(rounds * keys.length)
  const appended: { aggregate_id: string; id: string }[] = await db('outbox').orderBy('seq')
  const effects: { aggregate_id: string; event_id: string }[] = await db('effects').orderBy('seq')
  for (const key of keys) {
    const inOrder = appended.filter(({ aggregate_id }) => aggregate_id === key).map(({ id }) => id)
    expect(effects.filter(({ aggregate_id }) => aggregate_id === key).map(({ event_id }) => event_id)).toEqual(inOrder)
  }
  expect([8, 9, 10, 11].map((partition) => broker.records(TOPIC, partition).length > 0)).toContain(true)
  expect(consumer.status().ready).toBe(true)
  await eventually('nobody warns any more', () => relays.every((relay) => relay.status().problems.length === 0))
})

test('nothing goes to the topic before the consumers have caught up, and other topics flow meanwhile', async () => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  const relay = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const consumers = slowConsumers()
  const growing = growTo(setting, 12, { lag: consumers.lag })
  await consumers.askedOften()

  await setting.append(orderEvent('During', 'order-1'), {
    type: 'PaymentTaken',
    aggregate: { type: 'payment', id: 'payment-1' },
    payload: {},
  })
  await eventually('the other topic flows', async () => (await unpublished(db)) === 1)
  expect(idsOn(broker, 'payment.events')).toHaveLength(1)
  await eventually('it is told', () => relay.status().problems.join().includes('another partition count is adopted'))
  expect(relay.status().ready).toBe(true)
  await consumers.askedOften()
  expect(await unpublished(db)).toBe(1)
  consumers.catchUp()
  await growing
  await setting.drained()

  expect(typesOf(broker, 'order-1')).toEqual(['Before', 'During'])
})

test('waits for a send that is under way, which ends where it began', async () => {
  await using setting = await createRelaySetting()
  const { broker } = setting
  const relay = setting.start()
  await owns(relay, 64)
  // Of this key the two counts make different things.
  const key = 'order-3'
  await setting.append(orderEvent('First', key))
  await setting.drained()
  const hold = broker.faults.hold({ topic: TOPIC })
  await setting.append(orderEvent('Second', key))
  await hold.met
  await setting.append(orderEvent('Third', key))
  let asked = 0
  const growing = growTo(setting, 12, {
    lag: async () => {
      asked += 1
      return 0n
    },
  })
  await eventually('it is told', () => relay.status().problems.join().includes('another partition count is adopted'))
  await renewals(setting, 3)
  expect(asked).toBe(0)
  hold.release()
  await growing
  await setting.drained()

  expect(typesOf(broker, key).toSorted()).toEqual(['First', 'Second', 'Third'])
  const [first, second, third] = placesOf(setting, key)
  expect(second).toBe(first)
  expect(third).not.toBe(first)
})

test('a relay that starts meanwhile rests too, and is waited for', async () => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  const first = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const consumers = slowConsumers()
  const growing = growTo(setting, 12, { lag: consumers.lag })
  await eventually('it is told', () => first.status().problems.join().includes('another partition count is adopted'))
  const second = setting.start()
  await owns(second, 32)
  await first.stop()
  await owns(second, 64)
  await setting.append(orderEvent('During', 'order-1'))
  await eventually('it is told', () => second.status().problems.join().includes('another partition count is adopted'))
  await consumers.askedOften()
  expect(await unpublished(db)).toBe(1)
  consumers.catchUp()
  await growing
  await setting.drained()

  expect(typesOf(broker, 'order-1')).toEqual(['Before', 'During'])
})

test('when the consumers do not catch up in time the topic goes on as it was, and the error says what was waited for', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()

  await expect(growTo(setting, 12, { lag: async () => 7n, timeoutMs: 1_500 })).rejects.toMatchObject({
    code: 'MESSAGING_NOT_ADOPTED',
    topic: TOPIC,
    message: expect.stringContaining('its consumers have 7 records before them after 1500 ms'),
  })
  await setting.append(orderEvent('After', 'order-1'))
  await setting.drained()

  expect(await selectTopic(setting.db, TOPIC)).toEqual({ partitionCount: 8, earlierCounts: [], adoption: null })
  expect(typesOf(setting.broker, 'order-1')).toEqual(['Before', 'After'])
})

test('consumers of which nobody can tell anything are waited for', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  let asked = 0
  const lag = async () => {
    asked += 1
    if (asked < 3) throw new Error('no answer')
    return 0n
  }

  expect(await growTo(setting, 12, { lag })).toEqual({ before: 8, after: 12 })
  expect(asked).toBeGreaterThanOrEqual(3)
})

test('consumers that are misnamed are told at once, and the topic goes on as it was', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const lag = async () => {
    throw new InvalidOptionError('groups', 'sumary', 'groups that the brokers know')
  }

  await expect(growTo(setting, 12, { lag })).rejects.toMatchObject({
    code: 'MESSAGING_NOT_ADOPTED',
    message: expect.stringContaining('Option groups must be groups that the brokers know; it is "sumary"'),
  })
  expect(await selectTopic(setting.db, TOPIC)).toMatchObject({ partitionCount: 8, adoption: null })
})

test('a caller that dies lets the topic go on as it was', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  expect(await beginAdoption(setting.db, { topic: TOPIC, adoption: randomUUID() }, 50_000)).toBe(true)
  await eventually('it is told', () => relay.status().problems.join().includes('another partition count is adopted'))
  await setting.append(orderEvent('After', 'order-1'))
  // The time that nobody extends is over.
  await setting.db('topics').update({ rests_until: setting.db.raw('clock_timestamp()') })

  await setting.drained()
  expect(await selectTopic(setting.db, TOPIC)).toMatchObject({ partitionCount: 8, adoption: null })
})

test('of two callers one is refused, and a caller that gives up changes nothing', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const asked = Promise.withResolvers<void>()
  const giveUp = new AbortController()
  const lag = async () => {
    asked.resolve()
    return 1n
  }
  const first = growTo(setting, 12, { lag, signal: giveUp.signal })
  await asked.promise

  await expect(growTo(setting, 12)).rejects.toThrow('somebody else is at it')
  giveUp.abort()
  await expect(first).rejects.toThrow('it was given up')
  expect(await growTo(setting, 12)).toEqual({ before: 8, after: 12 })
})

test('the lanes of a worker that was frozen in the middle of a send are lost to it', async () => {
  await using setting = await createRelaySetting()
  const { owner: frozen, lane, directory, source, ownership, events } = await expiredWithOneRead(setting)

  await growTo(setting, 12)

  // It wakes up, is alive again at once, and nobody else has asked for the lane.
  const view = await directory.renew([frozen], 60_000)
  expect(view.lanes.find((state) => state.lane === lane)).toMatchObject({ owner: null, crashes: 1 })
  expect(view.adoptedTopics).toEqual([{ topic: TOPIC, partitionCount: 12, adoption: null }])
  expect(await source.settle(ownership, events)).toEqual({ changed: 0, fencedLanes: [lane] })
})

test('a rest that has ended is not taken up again: relays may send, and the adoption has failed', async () => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const consumers = slowConsumers()
  const growing = growTo(setting, 12, { lag: consumers.lag })
  const failure = expect(growing).rejects.toThrow('its rest had ended meanwhile')
  await consumers.askedOften()

  await db('topics').update({ rests_until: db.raw('clock_timestamp()') })
  consumers.catchUp()
  await failure
  await setting.append(orderEvent('After', 'order-1'))
  await setting.drained()

  expect(await selectTopic(db, TOPIC)).toEqual({ partitionCount: 8, earlierCounts: [], adoption: null })
  expect(typesOf(broker, 'order-1')).toEqual(['Before', 'After'])
})

test('a rest that was extended before the clock was set back is over for relays and callers alike', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const adoption = { topic: TOPIC, adoption: randomUUID() }
  expect(await beginAdoption(db, adoption, 15_000)).toBe(true)
  await db('topics').update({ rests_until: db.raw("clock_timestamp() + interval '1 hour'") })

  expect(await extendAdoption(db, adoption, 15_000)).toBe(false)
  expect(await switchCount(db, adoption, 12)).toBe(false)
  expect(await selectTopic(db, TOPIC)).toEqual({ partitionCount: 8, earlierCounts: [], adoption: null })
  await setting.append(orderEvent('After', 'order-1'))
  await setting.drained()
  expect(await beginAdoption(db, { ...adoption, adoption: randomUUID() }, 15_000)).toBe(true)
})

test('a worker that was forgotten in between says again that it is at rest', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const consumers = slowConsumers()
  const growing = growTo(setting, 12, { lag: consumers.lag })
  await consumers.askedOften()

  await db('relay_workers').delete()
  await renewals(setting, 1)
  consumers.catchUp()

  expect(await growing).toEqual({ before: 8, after: 12 })
})

test('a write of a vanished worker that is under way is waited for, and no renewal waits with it', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  const relay = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  await relay.stop()
  const [vanished, lane] = [randomUUID(), 0]
  const directory = createPostgresDirectory(db)
  await directory.renew([vanished], 60_000)
  const [grant] = await directory.claim(vanished, [lane])
  if (!grant) throw new Error('The lane is free')
  await db('relay_workers').update({ expires_at: db.raw('clock_timestamp()') })
  const writing = await db.transaction()
  expect(await lockLease(writing, { owner: vanished, leases: [grant] })).toBe(true)
  const consumers = slowConsumers()
  consumers.catchUp()
  const growing = growTo(setting, 12, { lag: consumers.lag })

  await consumers.askedOften()
  const started = performance.now()
  await directory.renew([randomUUID()], 1)
  expect(performance.now() - started).toBeLessThan(1_500)
  expect(await selectTopic(db, TOPIC)).toMatchObject({ partitionCount: 8 })
  await writing.commit()

  expect(await growing).toEqual({ before: 8, after: 12 })
})

test('what a worker marks after its lease has ended is seen by the consumers before the count changes', async () => {
  await using setting = await createRelaySetting()
  const { source, ownership, events } = await expiredWithOneRead(setting)
  const marked: number[] = []

  await growTo(setting, 12, {
    lag: async () => {
      // The ends of the partitions were looked at already.
      marked.push((await source.settle(ownership, events)).changed)
      return 0n
    },
  })

  expect(marked).toEqual([1, 0])
})

test('a topic goes on whose adoption is gone from a database that went back', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  const relay = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  await beginAdoption(db, { topic: TOPIC, adoption: randomUUID() }, 50_000)
  await eventually('it is told', () => relay.status().problems.join().includes('another partition count is adopted'))
  await setting.append(orderEvent('After', 'order-1'))

  await db('topics').update({ adoption: null, rests_until: null })

  await setting.drained()
  await eventually('it is told no more', () => relay.status().problems.length === 0)
})

test('fewer partitions than are in use are refused, and as many change nothing', async () => {
  await using setting = await createRelaySetting()
  setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  const adopt = () => adoptPartitions({ db: setting.db, publisher: setting.broker, topic: TOPIC, lag: noLag })

  expect(await adopt()).toEqual({ before: 8, after: 8 })
  await setting.db('topics').update({ partition_count: 9 })
  await expect(adopt()).rejects.toThrow('it has 8 partitions, and 9 are in use')
})

test('a topic that is not there is named, and so is a time that cannot be', async () => {
  await using setting = await createRelaySetting()
  const adopt = (options: Partial<AdoptPartitionsOptions>) =>
    adoptPartitions({ db: setting.db, publisher: setting.broker, topic: 'none.events', lag: noLag, ...options })

  await expect(adopt({})).rejects.toThrow('The partitions of none.events were not adopted: the broker does not have it')
  await expect(adopt({ timeoutMs: 0 })).rejects.toThrow('Option timeoutMs must be a positive whole number')
})

test('a quiet topic is not warned of any more once its partitions are adopted', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  await relay.stop()
  await setting.broker.addPartitions(TOPIC, 12)
  const next = setting.start()
  await setting.append(orderEvent('After', 'order-1'))
  await eventually('it warns', () => next.status().problems.join().includes('has 12 partitions; the relay uses 8'))
  await setting.drained()

  expect(await growTo(setting, 12)).toEqual({ before: 8, after: 12 })

  await eventually('it warns no more', () => next.status().problems.length === 0)
})

test('an event to be skipped counts as published when it lies where the old count had put it', async () => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  const first = setting.start()
  await setting.append(orderEvent('Before', 'order-1'))
  await setting.drained()
  await first.stop()
  await setting.append(orderEvent('Sent', 'order-3'), orderEvent('After', 'order-3'))
  const { id, key_hash: hash } = await db('outbox').where({ event_type: 'Sent' }).first('id', 'key_hash')
  // The last send of a relay that has vanished, of which it has told nobody.
  const record = { key: 'order-3', value: '{}', headers: { event_id: id, event_type: 'Sent' } }
  const batch = { topic: TOPIC, partition: (hash & 0x7fffffff) % 8, records: [record] }
  await broker.publish(batch, { signal: new AbortController().signal })
  await db('lane_leases').update({ owner: randomUUID() })

  await growTo(setting, 12)
  broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Sent')
  setting.start({ maxAttempts: 1 })
  const parked = { holder: 'relay', topic: TOPIC, aggregateType: 'order', aggregateId: 'order-3' }
  await eventually('the key is parked', async () => (await db('held_keys').where({ state: 'parked' })).length === 1)
  await db('held_keys').update({ next_attempt_at: db.fn.now() })
  await requestSkip(db, parked)
  await setting.drained()

  expect(await db('dead_letters').where({ state: 'skipped' })).toEqual([])
  expect(typesOf(broker, 'order-3').toSorted()).toEqual(['After', 'Sent'])
})
