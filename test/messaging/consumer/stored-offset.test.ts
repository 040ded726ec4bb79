/** The offset that a consumer keeps in its database, at every moment at which it may end. */
import { expect, test } from '@jest/globals'
import { createCrashingPool } from './crashing-pool.ts'
import { recordOf } from './scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, writeEffect } from './setting.ts'

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
