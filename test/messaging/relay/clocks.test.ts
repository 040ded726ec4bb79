/** The time of day is nobody's business but the reader's: it may jump, and differ between machines. */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, idsOn, owns, TOPIC, typesOf } from './setting.ts'

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

/** A time of day that can be set off, as on another machine; the monotonic clock is not touched. */
function shiftedClock(): { shiftTo(ms: number): void } & Disposable {
  const real = Date.now
  return {
    shiftTo(ms) {
      Date.now = () => real() + ms
    },
    [Symbol.dispose]() {
      Date.now = real
    },
  }
}

test('PC-23 a time of day that is ten minutes ahead or behind changes neither order nor back-off nor leases', async () => {
  await using setting = await createRelaySetting()
  using clock = shiftedClock()
  clock.shiftTo(10 * MINUTE_MS)
  const relays = [setting.start(), setting.start()]
  await Promise.all(relays.map((relay) => owns(relay, 32)))
  const allow = setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  await setting.append(orderEvent('Refused', 'bad'), orderEvent('After', 'bad'))
  await eventually('the key is held', async () => (await setting.db('held_keys')).length === 1)
  clock.shiftTo(-10 * MINUTE_MS)
  const [held] = await setting.db('held_keys').select(
    setting.db.raw(`next_attempt_at between clock_timestamp() - interval '30 seconds'
                                         and clock_timestamp() + interval '30 seconds' as soon`),
  )

  const keys = Array.from({ length: 20 }, () => randomUUID())
  for (let step = 0; step < 10; step += 1) {
    clock.shiftTo((step % 2 === 0 ? 10 : -10) * MINUTE_MS)
    await setting.append(...keys.map((key) => orderEvent(`Step${step}`, key)))
  }
  allow()
  await setting.drained()

  expect(held).toEqual({ soon: true })
  const inOrder = Array.from({ length: 10 }, (_, step) => `Step${step}`)
  for (const key of keys) expect(typesOf(setting.broker, key)).toEqual(inOrder)
  expect(typesOf(setting.broker, 'bad')).toEqual(['Refused', 'After'])
  expect(new Set(idsOn(setting.broker)).size).toBe(202)
  expect(idsOn(setting.broker)).toHaveLength(202)
  expect(await setting.db('lane_leases').where('crashes', '>', 0)).toEqual([])
})

test('PC-05 a record has the time of its publication, however old the event is or far ahead it is dated', async () => {
  await using setting = await createRelaySetting()
  const [tenDaysAgo, ahead] = [new Date(Date.now() - 10 * DAY_MS), new Date(Date.now() + 120 * MINUTE_MS)]
  await setting.append(
    orderEvent('Old', 'order-1', { occurredAt: tenDaysAgo }),
    orderEvent('Ahead', 'order-1', { occurredAt: ahead }),
  )
  await setting.db('outbox').update({ created_at: setting.db.raw('occurred_at') })
  const from = Date.now()
  setting.start()
  await setting.broker.receive(2)

  const records = setting.broker.records(TOPIC)
  expect(records.map(({ headers }) => headers.occurred_at)).toEqual([tenDaysAgo.toISOString(), ahead.toISOString()])
  for (const { timestamp } of records) {
    expect(timestamp.getTime()).toBeGreaterThanOrEqual(from)
    expect(timestamp.getTime()).toBeLessThanOrEqual(Date.now())
  }
})

test('F30 what was to end in a time that the clock of the database was set back from does not wait for it', async () => {
  await using setting = await createRelaySetting()
  const { db, broker } = setting
  const first = setting.start()
  const allow = broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  await setting.append(orderEvent('Refused', 'bad'), orderEvent('After', 'bad'))
  await eventually('the key is held', async () => (await db('held_keys')).length === 1)
  await first.stop()
  allow()
  // A relay that has died, its lease not yet over, and a key in back-off: all of it a day ahead now.
  const dead = randomUUID()
  await db('relay_workers').insert({ owner: dead, expires_at: db.raw(`clock_timestamp() + interval '1 day'`) })
  await db('lane_leases').update({ owner: dead, token: 5 })
  await db('held_keys').update({ next_attempt_at: db.raw(`clock_timestamp() + interval '1 day'`) })

  const second = setting.start()
  await owns(second, 64)
  await setting.drained()

  expect(typesOf(broker, 'bad')).toEqual(['Refused', 'After'])
})
