import { expect, test } from '@jest/globals'
import { recordOf } from './scripted-subscriber.ts'
import { createSetting, idOf, writeEffect } from './setting.ts'

test.each(['1 day', '10 years'])(
  'F30 a key in back-off when the clock of the database is set back by %s is tried again all the same',
  async (interval) => {
    const bad = recordOf(0, { key: 'a' })
    let failures = 1
    await using setting = await createSetting(async (trx, event) => {
      if (event.id === idOf(bad) && failures > 0) {
        failures -= 1
        throw new Error('no')
      }
      await writeEffect(trx, event)
    })
    const records = [bad, recordOf(1, { key: 'a' }), recordOf(2, { key: 'b' })]
    await setting.subscriber.deliver(records)
    await setting.db('held_keys').update({
      next_attempt_at: setting.db.raw('clock_timestamp() + cast(? as interval)', [interval]),
    })

    await setting.subscriber.deliverAll(records)

    expect([...(await setting.effects())].sort()).toEqual(records.map(idOf).sort())
    expect(await setting.db('held_keys')).toEqual([])
  },
)
