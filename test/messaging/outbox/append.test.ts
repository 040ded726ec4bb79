/** What appendToOutbox stores, and what it refuses. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { type DomainEvent, rawJson } from '../../../src/messaging/envelope.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { laneOf, murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

interface Row {
  readonly id: string
  readonly seq: string
  readonly aggregate_id: string
  readonly event_type: string
  readonly payload_text: string | null
  readonly [column: string]: unknown
}

async function rowsOf(db: Knex): Promise<Row[]> {
  return await db('outbox').select('*', db.raw('payload::text as payload_text')).orderBy('seq')
}

async function append(db: Knex, events: readonly DomainEvent[]) {
  return await inTransaction(db, (trx) => appendToOutbox(trx, events))
}

test('stores an event as the envelope that it resolves to', async () => {
  await using database = await createTestDatabase()
  const occurredAt = new Date('2026-03-29T01:30:00.123Z')

  const [envelope] = await append(database.db, [
    orderEvent('OrderPlaced', 'ö-1', { version: 3, payload: { b: 1, a: 'ä' }, occurredAt, headers: { tenant: 'x' } }),
  ])

  const [row] = await rowsOf(database.db)
  expect(row).toMatchObject({
    id: envelope?.id,
    lane: laneOf(murmur2('ö-1')),
    key_hash: murmur2('ö-1'),
    aggregate_type: 'order',
    aggregate_id: 'ö-1',
    aggregate_version: '3',
    event_type: 'OrderPlaced',
    headers: { tenant: 'x' },
    traceparent: null,
    occurred_at: occurredAt,
    published_at: null,
    topic: null,
    held: false,
  })
  expect(envelope).toEqual({
    id: row?.id,
    type: 'OrderPlaced',
    aggregate: { type: 'order', id: 'ö-1' },
    version: 3,
    payload: row?.payload_text,
    occurredAt,
    headers: { tenant: 'x' },
    trace: null,
  })
})

test('resolves to nothing, and asks nothing, for no events', async () => {
  await using database = await createTestDatabase()
  const statements: string[] = []
  database.db.on('query', ({ sql }) => statements.push(sql))

  await database.db.transaction(async (trx) => {
    expect(await appendToOutbox(trx, [])).toEqual([])
  })

  expect(statements).toEqual(['BEGIN;', 'COMMIT;'])
})

/** What is given, and the text that is to be stored and sent. */
const values: readonly (readonly [name: string, payload: unknown, stored: string | null])[] = [
  ['an empty array', [], '[]'],
  ['an array of numbers', [1], '[1]'],
  ['an array of objects', [{ a: 1 }], '[{"a": 1}]'],
  ['a text', 'plain', '"plain"'],
  ['a text that looks like an array', '{1,2}', '"{1,2}"'],
  ['a number', 42.5, '42.5'],
  ['true', true, 'true'],
  ['an empty object', {}, '{}'],
  ['an empty text', '', '""'],
  ['JSON null as a value', rawJson('null'), 'null'],
  ['a tombstone', null, null],
  ['an integer beyond 2^53', rawJson('{"n": 9007199254740993}'), '{"n": 9007199254740993}'],
  ['a decimal with its zeros', rawJson('[12.3400]'), '[12.3400]'],
  ['quotes, backslashes, braces and commas', { 'a"b\\': 'c,}{NULL' }, '{"a\\"b\\\\": "c,}{NULL"}'],
  ['text of every plane', '\u00e4\u4e16\u{1f600}\n\u0001', '"\u00e4\u4e16\u{1f600}\\n\\u0001"'],
  ['an escaped pair of surrogates', rawJson('"\\ud83d\\ude00"'), '"\u{1f600}"'],
  ['an escaped backslash before u0000', rawJson('"\\\\u0000"'), '"\\\\u0000"'],
  ['a Date', new Date('2026-01-02T03:04:05.678Z'), '"2026-01-02T03:04:05.678Z"'],
  ['a property that is undefined', { a: undefined, b: 1 }, '{"b": 1}'],
]

test('keeps every value that JSON has, of one event or of many (PC-40, PC-21)', async () => {
  await using database = await createTestDatabase()
  const events = values.map(([name, payload]) => orderEvent(name, 'o-1', { payload }))

  const alone = await inTransaction(database.db, async (trx) => {
    const envelopes = []
    for (const event of events) envelopes.push(...(await appendToOutbox(trx, [event])))
    return envelopes
  })
  const together = await append(database.db, events)

  const expected = values.map(([name, , stored]) => [name, stored])
  const rows = (await rowsOf(database.db)).map((row) => [row.event_type, row.payload_text])
  expect(rows).toEqual([...expected, ...expected])
  expect(alone.map(({ type, payload }) => [type, payload])).toEqual(expected)
  expect(together.map(({ type, payload }) => [type, payload])).toEqual(expected)
})

test('gives twenty events of one mutation, and of one instant, the order of the calls (PC-22)', async () => {
  await using database = await createTestDatabase()
  const types = Array.from({ length: 20 }, (_, index) => `Event${index}`)
  const occurredAt = new Date()

  await inTransaction(database.db, async (trx) => {
    const calls = types.map((type) => appendToOutbox(trx, [orderEvent(type, 'o-1', { occurredAt })]))
    await Promise.all(calls)
  })

  expect((await rowsOf(database.db)).map(({ event_type }) => event_type)).toEqual(types)
})

test('stores 10,000 events of one mutation in one statement and in their order (PC-29)', async () => {
  await using database = await createTestDatabase()
  const events = Array.from({ length: 10_000 }, (_, index) =>
    orderEvent('OrderPlaced', `o-${index % 100}`, { version: index }),
  )
  let bindings = 0
  database.db.on('query', (query) => {
    bindings = Math.max(bindings, query.bindings?.length ?? 0)
  })

  await append(database.db, events)

  const rows = await rowsOf(database.db)
  expect(rows.map((row) => Number(row.aggregate_version))).toEqual(events.map(({ version }) => version))
  expect(bindings).toBeLessThan(20)
})
