/** The statements that docs/known-limits.md gives to operators. */
import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

const page = await readFile(new URL('../../../docs/known-limits.md', import.meta.url), 'utf8')
const statements = (page.match(/```sql\n([\s\S]*?)```/)?.[1] ?? '').split(';').filter((text) => text.trim() !== '')

test('PC-77: what is old and published is deleted, and nothing that waits, is held or open', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const types = ['Old', 'Fresh', 'Pending', 'Held']
  await inTransaction(db, (trx) =>
    appendToOutbox(
      trx,
      types.map((type) => orderEvent(type)),
    ),
  )
  const longAgo = db.raw(`clock_timestamp() - interval '40 days'`)
  await db('outbox').update({ created_at: longAgo, occurred_at: longAgo })
  await db('outbox').where({ event_type: 'Old' }).update({ published_at: longAgo })
  await db('outbox').where({ event_type: 'Fresh' }).update({ published_at: db.fn.now() })
  await db('outbox').where({ event_type: 'Held' }).update({ held: true })
  await db.raw(
    `insert into processed_events (consumer, event_id, processed_at)
     values ('old', gen_random_uuid(), clock_timestamp() - interval '40 days'),
            ('fresh', gen_random_uuid(), clock_timestamp())`,
  )
  await db.raw(
    `insert into dead_letters (holder, state, event_id, topic, aggregate_type, aggregate_id, created_at, settled_at)
     select holder, state, gen_random_uuid(), 'order.events', 'order', 'a', clock_timestamp() - interval '50 days', settled_at
       from (values ('open', 'dead', null),
                    ('settled', 'redriven', clock_timestamp() - interval '40 days')) as letter (holder, state, settled_at)`,
  )

  for (const statement of statements) await db.raw(statement)

  expect(statements).toHaveLength(3)
  expect(await db('outbox').orderBy('seq').pluck('event_type')).toEqual(['Fresh', 'Pending', 'Held'])
  expect(await db('processed_events').pluck('consumer')).toEqual(['fresh'])
  expect(await db('dead_letters').pluck('holder')).toEqual(['open'])
})
