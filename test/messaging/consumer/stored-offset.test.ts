/** The offset that a consumer keeps in its database, at every moment at which it may end. */
import { expect, test } from '@jest/globals'
import { StoredOffsets } from '../../../src/messaging/consumer/stored-offsets.ts'
import type { TopicPartition } from '../../../src/messaging/transport.ts'
import { createTestDatabase } from '../../support/database.ts'
import { createCrashingPool } from './crashing-pool.ts'
import { recordOf, TOPIC } from './scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, writeEffect } from './setting.ts'

test('a topic that was made anew counts from its start again', async () => {
  await using setting = await createSetting()
  const { subscriber, db } = setting
  const where = { topic: TOPIC, partition: 0 }
  await subscriber.deliver([0, 1, 2, 3, 4].map((offset) => recordOf(offset)))

  expect(await subscriber.startOffset(where, 3n)).toBe(5n)
  await subscriber.deliver([recordOf(0), recordOf(1)])
  const first = await db('consumer_offsets').pluck('next_offset')
  await subscriber.deliver([recordOf(2)])

  expect([first, await db('consumer_offsets').pluck('next_offset')]).toEqual([['2'], ['3']])
})

test("a lower offset of a partition that is another member's is no database that went back", async () => {
  await using database = await createTestDatabase()
  const { db } = database
  let wentBack = 0
  const offsets = new StoredOffsets('summary', () => (wentBack += 1))
  const [ours, others] = [0, 1].map((partition) => ({ topic: TOPIC, partition })) as [TopicPartition, TopicPartition]
  for (const where of [ours, others]) {
    await offsets.begin(db, where, 10n)
    await offsets.store(db, where, 7n)
    offsets.committed(where, 7n)
  }

  await db('consumer_offsets').where({ partition: 1 }).update({ next_offset: 2 })
  await offsets.check(db, [ours])
  const before = wentBack
  await db('consumer_offsets').where({ partition: 0 }).update({ next_offset: 2 })
  await offsets.check(db, [ours])

  expect([before, wentBack]).toEqual([0, 1])
})

test('F25: an offset is stored with the effects below it, or not at all', async () => {
  await using setting = await createSetting()
  await setting.consumer.stop()
  const offsets: number[] = []

  for (let at = 1, crashed = true; crashed; at += 1) {
    await setting.db.raw('truncate effects, processed_events, consumer_offsets restart identity')
    const records = [recordOf(0), recordOf(1), recordOf(2)]
    const pool = createCrashingPool(setting.database, at, 'after')
    {
      await using consumer = await joinSetting(setting, writeEffect, { db: pool.db, graceMs: 100 })
      await consumer.subscriber.deliver(records)
    }

    const [stored] = await setting.db('consumer_offsets').pluck('next_offset')
    const below = records.slice(0, Number(stored ?? 0)).map(idOf)
    expect(await setting.effects()).toEqual(below)
    offsets.push(below.length)
    crashed = pool.crashed
  }

  expect(new Set(offsets)).toEqual(new Set([0, 3]))
})
