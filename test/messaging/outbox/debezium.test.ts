import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

const page = await readFile(new URL('../../../docs/debezium.md', import.meta.url), 'utf8')

test('PC-28: the columns that docs/debezium.md names are there, with the types that it says', async () => {
  await using database = await createTestDatabase()
  const columns: Record<string, { type: string }> = await database.db('outbox').columnInfo()
  const mapped = [...page.matchAll(/^\| `[\w.]+` \| `(\w+)` \| `(\w+)` \|$/gm)].map(([, column, type]) => [
    column,
    type,
  ])
  const placed = (page.match(/additional\.placement=(.*)/)?.[1] ?? '').split(',').map((part) => part.split(':')[0])

  expect(mapped).toHaveLength(5)
  expect(mapped).toEqual(mapped.map(([column]) => [column, columns[column ?? '']?.type]))
  expect(placed).toHaveLength(6)
  expect(placed.filter((column) => columns[column ?? ''] === undefined)).toEqual([])
})

test('PC-28: one insert has all that a reader of the log needs, and the payload is JSON once', async () => {
  await using database = await createTestDatabase()
  await inTransaction(database.db, (trx) =>
    appendToOutbox(trx, [
      orderEvent('OrderPlaced', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', { version: 3, payload: { total: 10 } }),
      orderEvent('OrderPlaced', '42', { payload: null }),
    ]),
  )

  const rows = await database.db('outbox').orderBy('seq').select('aggregate_id', 'payload', 'aggregate_version')
  expect(rows).toEqual([
    { aggregate_id: 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', payload: { total: 10 }, aggregate_version: '3' },
    { aggregate_id: '42', payload: null, aggregate_version: null },
  ])
})
