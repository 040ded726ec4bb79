/** What becomes of a parked event that an operator wants skipped: it is not on the topic, ever, or it counts as published. */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { requestResume, requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import type { RelayStatus } from '../../../src/messaging/relay/relay-status.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { OutgoingRecord } from '../../../src/messaging/transport.ts'
import { orderEvent } from '../../support/events.ts'
import { untilSession } from '../../support/sessions.ts'
import { createRelaySetting, type RelaySetting, TOPIC, typesOf } from './setting.ts'

const BAD = { holder: 'relay', topic: TOPIC, aggregateType: 'order', aggregateId: 'bad' }

const isFirst = ({ headers }: OutgoingRecord) => headers.event_type === 'First'

test('skips an event that was only ever refused at once, also while the broker is away', async () => {
  await using setting = await createRelaySetting()
  setting.start({ maxAttempts: 1 })
  const allow = setting.broker.faults.refuseRecords(isFirst)
  await setting.append(orderEvent('First', 'bad'), orderEvent('After', 'bad'))
  await parked(setting.db)
  const mend = setting.broker.faults.outage()
  await requestSkip(setting.db, BAD)
  await eventually('it is skipped', async () => (await skipped(setting.db)).length === 1)
  mend()
  allow()
  await setting.drained()
  await letGo(setting.db)
  await setting.append(orderEvent('New', 'bad'))
  await setting.drained()

  expect(await skipped(setting.db)).toEqual(['First'])
  expect(typesOf(setting.broker, 'bad')).toEqual(['After', 'New'])
})

test('does the skip that has taken the place of a resume, whoever has begun to carry that out', async () => {
  await using setting = await createRelaySetting()
  setting.start({ maxAttempts: 1 })
  const allow = setting.broker.faults.refuseRecords(isFirst)
  await setting.append(orderEvent('First', 'bad'), orderEvent('After', 'bad'))
  await parked(setting.db)

  await setting.db.transaction(async (trx) => {
    await trx.raw('select from lane_leases for update')
    await requestResume(setting.db, BAD)
    // Not the renewal of a lease, which may wait as well.
    await untilSession(setting.db, `wait_event_type = 'Lock' and query like '%for share of lane_leases'`)
    allow()
    await requestSkip(setting.db, BAD)
  })
  await setting.drained()
  await letGo(setting.db)

  expect(await skipped(setting.db)).toEqual(['First'])
  expect(typesOf(setting.broker, 'bad')).toEqual(['After'])
})

test('waits with an event that may be on its way until nothing can bring it any more', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ maxAttempts: 1, publisher: impatient(setting) })
  await parkAfter(setting, 'request lost')
  await requestSkip(setting.db, BAD)

  const due = await setting
    .db('held_keys')
    .first<{ ms: number }>(setting.db.raw('extract(epoch from next_attempt_at - held_at)::float * 1000 as ms'))
  expect(due?.ms).toBeGreaterThan(30_000)
  // The relay has seen the request once it has met events that came behind it.
  await setting.append(orderEvent('OrderPlaced', 'good'))
  await eventually('the others flow', () => typesOf(setting.broker, 'good').length === 1)
  await eventually('the key is told of', () => isParked(relay.status()))
  expect(await skipped(setting.db)).toEqual([])
})

test('counts an event as published whose send was applied unknown to the relay', async () => {
  await using setting = await createRelaySetting()
  setting.start({ maxAttempts: 1, publisher: impatient(setting) })
  await parkAfter(setting, 'answer lost')
  await askedInTime(setting.db)
  await setting.drained()
  await letGo(setting.db)

  expect(await skipped(setting.db)).toEqual([])
  expect(typesOf(setting.broker, 'bad')).toEqual(['First', 'After'])
})

test('skips an event whose send was lost, and that one never comes', async () => {
  await using setting = await createRelaySetting()
  setting.start({ maxAttempts: 1, publisher: impatient(setting) })
  const allow = await parkAfter(setting, 'request lost')
  allow()
  await askedInTime(setting.db)
  await setting.drained()
  await letGo(setting.db)
  await setting.append(orderEvent('New', 'bad'))
  await setting.drained()

  expect(await skipped(setting.db)).toEqual(['First'])
  expect(typesOf(setting.broker, 'bad')).toEqual(['After', 'New'])
})

test('remembers what was in doubt when the lane has changed hands in good order', async () => {
  await using setting = await createRelaySetting()
  const first = setting.start({ maxAttempts: 1, publisher: impatient(setting) })
  const away = await loseFirst(setting, 'answer lost')
  await first.stop()
  setting.broker.faults.refuseRecords(isFirst)
  away()
  setting.start({ maxAttempts: 1 })
  await parked(setting.db)
  await askedInTime(setting.db)
  await setting.drained()

  expect(await skipped(setting.db)).toEqual([])
  expect(typesOf(setting.broker, 'bad')).toEqual(['First', 'After'])
})

test('doubts what a relay that vanished may have sent', async () => {
  await using setting = await createRelaySetting()
  await setting.append(orderEvent('First', 'bad'), orderEvent('After', 'bad'))
  // Its last send, of which it has told nobody.
  const { id } = await setting.db('outbox').where({ event_type: 'First' }).first('id')
  const record = { key: 'bad', value: '{}', headers: { event_id: id, event_type: 'First' } }
  await publishApart(setting, record)
  await setting.db('lane_leases').update({ owner: randomUUID(), token: 5 })
  setting.broker.faults.refuseRecords(isFirst)
  setting.start({ maxAttempts: 1 })
  await parked(setting.db)
  await askedInTime(setting.db)
  await setting.drained()

  expect(await skipped(setting.db)).toEqual([])
  expect(typesOf(setting.broker, 'bad')).toEqual(['First', 'After'])
})

test('skips nothing while the partition cannot be read, and goes on once it can', async () => {
  await using setting = await createRelaySetting()
  setting.start({ maxAttempts: 1, publisher: impatient(setting) })
  await parkAfter(setting, 'request lost')
  const read = Promise.withResolvers<void>()
  const mend = setting.broker.faults.add(({ records }) => {
    if (records.length > 0) return null
    read.resolve()
    return { kind: 'refused', failure: 'destination', reason: 'TOPIC_AUTHORIZATION_FAILED' }
  })
  await askedInTime(setting.db)
  await read.promise
  await setting.append(orderEvent('OrderPlaced', 'good'))
  await eventually('the others flow', () => typesOf(setting.broker, 'good').length === 1)
  expect(await skipped(setting.db)).toEqual([])
  mend()
  await eventually('it is skipped', async () => (await skipped(setting.db)).length === 1, 40_000)

  await setting.drained()
  expect(typesOf(setting.broker, 'bad')).toEqual(['After'])
})

/** A publisher that tries once: whatever becomes of a request reaches the relay. */
function impatient({ broker }: RelaySetting) {
  return broker.createPublisher({ deliveryTimeoutMs: 0 })
}

/**
 * Appends two events of one key; the first request with them comes to nothing
 * known, and the broker is away then. Returns what brings it back.
 */
async function loseFirst(setting: RelaySetting, fault: 'answer lost' | 'request lost'): Promise<() => void> {
  const lost = Promise.withResolvers<void>()
  let requests = 0
  const end = setting.broker.faults.add(({ records }) => {
    if (!records.some(isFirst)) return null
    requests += 1
    if (requests > 1) lost.resolve()
    return requests === 1 ? { kind: fault } : { kind: 'refused', failure: 'outage', reason: 'LEADER_NOT_AVAILABLE' }
  })
  // Alone in its batch: the broker would keep the second too.
  await setting.append(orderEvent('First', 'bad'))
  await lost.promise
  await setting.append(orderEvent('After', 'bad'))
  return end
}

/** The same, and the first event is refused from then on, until its key is parked. Returns what ends the refusals. */
async function parkAfter(setting: RelaySetting, fault: 'answer lost' | 'request lost'): Promise<() => void> {
  const away = await loseFirst(setting, fault)
  const allow = setting.broker.faults.refuseRecords(isFirst)
  away()
  await parked(setting.db)
  return allow
}

async function parked(db: Knex): Promise<void> {
  await eventually('the key is parked', async () => (await db('held_keys').where({ state: 'parked' })).length === 1)
}

async function letGo(db: Knex): Promise<void> {
  await eventually('the key is let go', async () => (await db('held_keys')).length === 0)
}

/** Asks for a skip whose time has come. */
async function askedInTime(db: Knex): Promise<void> {
  await db('held_keys').update({ next_attempt_at: db.fn.now() })
  await requestSkip(db, BAD)
}

async function skipped(db: Knex): Promise<readonly string[]> {
  return await db('dead_letters').where({ holder: 'relay', state: 'skipped' }).pluck('event_type')
}

function isParked({ heldKeys }: RelayStatus): boolean {
  return heldKeys.some(({ state }) => state === 'parked')
}

async function partitionOfBad({ db }: RelaySetting): Promise<number> {
  const { key_hash: hash } = await db('outbox').where({ aggregate_id: 'bad' }).first('key_hash')
  return (hash & 0x7fffffff) % 8
}

/** Publishes a record of the key past the relay. */
async function publishApart(setting: RelaySetting, record: OutgoingRecord): Promise<void> {
  await setting.broker.createPublisher().publish(
    { topic: TOPIC, partition: await partitionOfBad(setting), records: [record] },
    {
      signal: new AbortController().signal,
    },
  )
}
