/** A redrive is counted once its transaction has committed, by what came of it. */
import { expect, test } from '@jest/globals'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { requestResume, requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'
import { recordOf, TOPIC } from '../consumer/scripted-subscriber.ts'
import { createSetting, idOf, type Setting, writeEffect } from '../consumer/setting.ts'

const points = readMetrics()
const KEY = { holder: 'summary', topic: TOPIC, aggregateType: 'order', aggregateId: 'a' }

/** How often deliveries have come to each result so far. */
async function counts(): Promise<Readonly<Record<string, unknown>>> {
  const all = await points('outbox.consumer.processed.messages')
  return Object.fromEntries(all.map(({ attributes, value }) => [String(attributes['outbox.result']), value]))
}

async function resumed({ db }: Setting): Promise<void> {
  await requestResume(db, KEY)
  await eventually('the request was carried out', async () => (await listHeldKeys(db))[0]?.request === null)
}

test('a redrive that rolls back counts nothing, one that is a duplicate is no effect, and a skip is a skip', async () => {
  const refused = new Set<string>()
  await using setting = await createSetting(
    async (trx, event) => {
      if (refused.has(event.id)) throw new RangeError('refused')
      await writeEffect(trx, event)
    },
    { maxAttempts: 1 },
  )
  const { db } = setting
  const records = [0, 1, 2, 3].map((offset) => recordOf(offset, { key: 'a' }))
  for (const record of records) refused.add(idOf(record))
  await setting.subscriber.deliverAll(records)
  expect(await counts()).toEqual({ dead_lettered: 1, waiting: 3 })

  // The first handler succeeds, and its COMMIT fails.
  refused.delete(idOf(records[0] ?? recordOf(0)))
  await db.raw(`create function refuse() returns trigger language plpgsql
                as $$ begin raise exception 'not now' using errcode = '23514'; end $$`)
  await db.raw(`create constraint trigger refuse_at_commit after insert on effects
                deferrable initially deferred for each row execute function refuse()`)
  await resumed(setting)
  expect(await setting.effects()).toEqual([])
  expect(await counts()).toEqual({ dead_lettered: 1, waiting: 3 })
  await db.raw('drop trigger refuse_at_commit on effects')

  // Then it has its effect, and the second fails.
  await resumed(setting)
  expect(await counts()).toEqual({ dead_lettered: 1, waiting: 3, processed: 1 })

  // Another instance has had the second; the third fails, and is skipped; the fourth has its effect.
  refused.delete(idOf(records[1] ?? recordOf(1)))
  await db('processed_events').insert({ consumer: 'summary', event_id: idOf(records[1] ?? recordOf(1)) })
  await resumed(setting)
  expect(await counts()).toEqual({ dead_lettered: 1, waiting: 3, processed: 1, duplicate: 1 })
  refused.clear()
  await requestSkip(db, KEY)
  await eventually('the key is let go', async () => (await listHeldKeys(db)).length === 0)

  expect(await counts()).toEqual({ dead_lettered: 1, waiting: 3, processed: 2, duplicate: 1, skipped: 1 })
  expect(await setting.effects()).toEqual([idOf(records[0] ?? recordOf(0)), idOf(records[3] ?? recordOf(3))])
})
