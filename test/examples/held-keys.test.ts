/** The operator's example, run as its reader would run it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, test } from '@jest/globals'
import { appendToOutbox, inTransaction, listHeldKeys } from '../../src/messaging/index.ts'
import { createTestDatabase } from '../support/database.ts'

async function heldKeys(url: string, ...parameters: readonly string[]) {
  const example = spawn(process.execPath, ['examples/held-keys.ts', ...parameters], {
    env: { ...process.env, DATABASE_URL: url },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  using _example = { [Symbol.dispose]: () => void example.kill('SIGKILL') }
  const [out, errors, [code]] = await Promise.all([text(example.stdout), text(example.stderr), once(example, 'exit')])
  return { out: out.trim(), errors: errors.trim(), code }
}

test('the example lists what is held, and asks for a resume or a skip of the one key that is meant', async () => {
  await using database = await createTestDatabase()
  const { db, url } = database
  expect(await heldKeys(url)).toEqual({ out: 'no held keys', errors: '', code: 0 })

  const refused = { type: 'OrderPlaced', aggregate: { type: 'order', id: 'a' }, payload: {} }
  const [first] = await inTransaction(db, (trx) => appendToOutbox(trx, [refused, { ...refused, type: 'OrderShipped' }]))
  await db('outbox').update({ held: true })
  await db.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, state, next_attempt_at, reason)
     values ('relay', 'order.events', 'order', 'a', 'parked', now(), 'MESSAGE_TOO_LARGE'),
            ('summary', 'order.events', 'order', 'a', 'parked', now(), 'TypeError'),
            ('summary', 'order.events', 'order', 'b', 'backoff', '2030-01-01 00:00:00Z', 'TypeError')`,
  )

  const listed = (await heldKeys(url, 'list')).out.split('\n').map((line) => JSON.parse(line))
  expect(listed).toHaveLength(3)
  const [relays] = listed.filter(({ holder }) => holder === 'relay')
  expect(relays).toMatchObject({ eventId: first?.id, eventType: 'OrderPlaced' })
  expect(listed.map(({ state, nextAttemptAt = null }) => [state, nextAttemptAt])).toEqual([
    ['parked', null],
    ['parked', null],
    ['backoff', '2030-01-01T00:00:00.000Z'],
  ])

  expect(await heldKeys(url, 'resume', 'c')).toEqual({ out: '', errors: 'no held key has this id', code: 1 })
  expect(await heldKeys(url, 'resume', 'a')).toMatchObject({ out: '', code: 1 })
  expect(await heldKeys(url, 'resume', 'a', 'summary')).toEqual({ out: 'requested', errors: '', code: 0 })
  expect(await heldKeys(url, 'skip', 'a', 'relay', 'order.events')).toMatchObject({ out: 'requested', code: 0 })
  expect(await heldKeys(url, 'skip', 'b')).toEqual({
    out: '',
    errors:
      'not_applicable: the key is in back-off and is tried again by itself, next at 2030-01-01T00:00:00.000Z; only a parked key can be skipped',
    code: 1,
  })

  expect(await heldKeys(url, 'retry', 'a', 'relay')).toMatchObject({
    errors: expect.stringContaining('parked'),
    code: 1,
  })
  expect(await heldKeys(url, 'retry', 'b')).toEqual({ out: 'requested', errors: '', code: 0 })
  expect(await heldKeys(url, 'drop', 'b')).toMatchObject({ errors: expect.stringMatching(/^list, resume/), code: 1 })

  const requests = (await listHeldKeys(db)).map(({ holder, aggregateId, request }) => [holder, aggregateId, request])
  expect(new Set(requests.map(String))).toEqual(new Set(['relay,a,skip', 'summary,a,resume', 'summary,b,retry_now']))
})

test('the example lists a record that was none of ours, shows it, and dismisses it once and no event', async () => {
  await using database = await createTestDatabase()
  const { db, url } = database
  await db.raw(
    `insert into dead_letters (holder, state, event_id, topic, aggregate_type, aggregate_id, partition, record_offset, record_value, record_headers, reason)
     values ('summary', 'dead', null, 'order.events', 'order', '', 3, 41, 'no event', '{"from": "elsewhere"}', 'NO_EVENT_ID'),
            ('summary', 'dead', gen_random_uuid(), 'order.events', 'order', 'a', 3, 42, '{}', '{}', 'TypeError')`,
  )

  const [none, ...listed] = (await heldKeys(url)).out.split('\n')
  expect([none, listed.length]).toEqual(['no held keys', 1])
  const record = JSON.parse(listed[0] ?? '')
  expect(record).toMatchObject({
    holder: 'summary',
    topic: 'order.events',
    partition: 3,
    offset: '41',
    reason: 'NO_EVENT_ID',
  })
  const seq: string = record.foreignRecord

  const shown = { key: null, value: 'no event', headers: { from: 'elsewhere' } }
  expect(JSON.parse((await heldKeys(url, 'show', seq)).out)).toEqual(shown)
  expect(await heldKeys(url, 'dismiss', String(Number(seq) + 1))).toMatchObject({ out: '', code: 1 })
  expect(await heldKeys(url, 'dismiss', seq)).toEqual({ out: 'dismissed', errors: '', code: 0 })
  expect(await heldKeys(url, 'dismiss', seq)).toMatchObject({ out: '', code: 1 })
  const states = await db('dead_letters').orderBy('seq').pluck('state')
  expect(states).toEqual(['skipped', 'dead'])
})
