import { expect, test } from '@jest/globals'
import { eventually } from '../../src/messaging/testing/contract-harness.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { CONSUMER } from '../support/system/evidence.ts'
import { STEADY } from './steadiness.ts'
import { startWatch } from './watch.ts'

/** Appends an event that was created so long ago; resolves to its id. */
async function append({ db }: TestDatabase, ageMs: number): Promise<string> {
  const { rows } = await db.raw<{ rows: { id: string }[] }>(
    `insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, event_type, occurred_at, created_at)
     values (gen_random_uuid(), 0, 0, 'order', 'o-1', 'OrderPlaced', now(), clock_timestamp() - :age::interval)
     returning id`,
    { age: `${ageMs} milliseconds` },
  )
  return rows[0]?.id ?? ''
}

test('sees how long the oldest event has waited for the broker, held or not, until it is published', async () => {
  await using database = await createTestDatabase()
  await append(database, 60_000)
  const held = await append(database, 120_000)
  await database.db('outbox').where({ id: held }).update({ held: true })
  await using watch = startWatch(database.url)

  await eventually('both', () => watch.looks.at(-1)?.pending === 2)
  expect(watch.looks.at(-1)?.waits?.broker).toBeGreaterThanOrEqual(120_000)

  await database.db('outbox').update({ published_at: database.db.fn.now(), held: false })
  await eventually('none', () => watch.looks.at(-1)?.pending === 0)
  expect(watch.looks.at(-1)?.waits?.broker).toBe(0)
})

test('sees that an answered event has no effect yet, until the inbox has it', async () => {
  await using database = await createTestDatabase()
  const id = await append(database, 0)
  await using watch = startWatch(database.url)

  watch.answered([id])
  await eventually('that it waits for a while', () => (watch.looks.at(-1)?.waits?.effect ?? 0) > 500)

  await database.db('processed_events').insert({ consumer: CONSUMER, event_id: id })
  await eventually('that it waits no more', () => watch.looks.at(-1)?.waits?.effect === 0)
})

test('is steady once events have their effects and clients their answers, and not before', async () => {
  await using database = await createTestDatabase()
  await append(database, 60_000)
  await using watch = startWatch(database.url)
  const answers = setInterval(() => watch.answered([]), 20)
  await using _answers = { [Symbol.asyncDispose]: async () => clearInterval(answers) }
  await eventually('a look', () => watch.looks.length > 0)

  const steady = watch.steady({ from: performance.now(), bounds: STEADY, withinMs: 60_000 })
  await database.db('outbox').update({ published_at: database.db.fn.now() })

  expect(await steady).not.toBeNull()
  expect(watch.looks[0]?.waits?.broker).toBeGreaterThan(STEADY.broker)
})

test('a database that does not answer is not steady, however long one looks', async () => {
  await using watch = startWatch('postgres://postgres@127.0.0.1:1/postgres')

  const steady = await watch.steady({ from: performance.now(), bounds: STEADY, withinMs: 100 })

  expect(steady).toBeNull()
  expect(watch.looks.every(({ waits }) => waits === null)).toBe(true)
})
