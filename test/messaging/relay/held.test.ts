import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { laneOf, murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, idsOn, typesOf } from './setting.ts'

async function parked(db: Knex): Promise<void> {
  await eventually('the key is parked', async () => (await db('held_keys').where({ state: 'parked' })).length === 1)
}

/** The transactions that wait for a lock now, each told from others of its session by when it began. */
async function lockWaits(db: Knex): Promise<readonly string[]> {
  const { rows } = await db.raw<{ rows: { wait: string }[] }>(
    `select pid || ' ' || xact_start as wait
       from pg_stat_activity
      where datname = current_database()
        and wait_event_type = 'Lock'`,
  )
  return rows.map(({ wait }) => wait)
}

test('a send that was answered counts as survived: no outage parks a key in a lane whose owners kept dying', async () => {
  await using setting = await createRelaySetting()
  const lane = laneOf(murmur2('survivor'))
  await setting.append(orderEvent('OrderPlaced', 'survivor'))
  await setting.db('lane_leases').where({ lane }).update({ crashes: 5 })
  await setting.db('outbox').update({ attempts: 2 })
  let sends = 0
  const end = setting.broker.faults.add(() => {
    sends += 1
    return { kind: 'refused', failure: 'destination', reason: 'TOPIC_AUTHORIZATION_FAILED' }
  })
  setting.start()
  await eventually('it was sent', () => sends >= 1)
  await eventually('its attempts are forgotten', async () => {
    const row = await setting.db('outbox').first('attempts')
    return row?.attempts === 0
  })
  await eventually('it was sent again', () => sends >= 3)

  expect(await setting.db('held_keys')).toEqual([])
  end()
  await setting.drained()
})

test('a key that the database holds no longer is let go, whoever did it', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ maxAttempts: 1 })
  const allow = setting.broker.faults.refuseRecords(() => true)
  await setting.append(orderEvent('Refused', 'bad'))
  await parked(setting.db)
  await eventually('it is told', () => relay.status().heldKeys.length === 1)
  allow()
  await setting.db('held_keys').delete()
  await setting.db('outbox').update({ held: false })
  await setting.append(orderEvent('After', 'bad'))

  await setting.drained()
  expect(typesOf(setting.broker, 'bad')).toEqual(['Refused', 'After'])
  await eventually('it is told no more', () => relay.status().heldKeys.length === 0)
})

test('a held key that an operator has locked stops its own events alone', async () => {
  await using setting = await createRelaySetting()
  const operator = setting.database.createPool()
  setting.start({ maxAttempts: 1 })
  setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  await setting.append(orderEvent('Refused', 'bad'))
  await parked(setting.db)

  const lock = await operator.transaction()
  await lock.raw('select 1 from held_keys for update')
  await setting.append(orderEvent('After', 'bad'), orderEvent('OrderPlaced', 'good'))
  await eventually('the others flow', () => idsOn(setting.broker).length === 1)
  // The relay gives up waiting for the lock after a while, and tries again. The others do not flow in between alone:
  // on a busy machine one wait may be too short for them, and the next one is not.
  for (let round = 1, duringOne = false; !duringOne; round += 1) {
    const [wait] = await lockWaits(setting.db)
    await setting.append(...Array.from({ length: 64 }, () => orderEvent('OrderPlaced')))
    await eventually('and go on flowing', () => idsOn(setting.broker).length === 1 + round * 64)
    duringOne = wait !== undefined && (await lockWaits(setting.db)).includes(wait)
    expect(round).toBeLessThan(50)
  }
  await lock.rollback()
  await eventually('the follower is held', async () => (await setting.db('outbox').where({ held: true })).length === 2)
})
