import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { listDeadLetters } from '../../../src/messaging/dead-letters/list.ts'
import { createTestDatabase } from '../../support/database.ts'

test('PC-47: dead letters that arrived within one millisecond are each on one page', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const ids = Array.from({ length: 12 }, () => randomUUID())
  // Out of order as well: clocks are set back.
  await db.raw(
    `insert into dead_letters (holder, state, event_id, topic, aggregate_type, aggregate_id, created_at)
     select 'summary', 'dead', id, 'order.events', 'order', 'a',
            timestamptz '2026-03-29 01:30:00.0001+00' - n * interval '100 microseconds'
       from unnest(cast(:ids as uuid[])) with ordinality as letter (id, n)`,
    { ids },
  )

  const seen: (string | null)[] = []
  for (let after = 0n; ; ) {
    const page = await listDeadLetters(db, { after, limit: 2 })
    seen.push(...page.map(({ eventId }) => eventId))
    const last = page.at(-1)
    if (!last) break
    after = last.seq
  }

  expect(seen).toEqual(ids)
})
