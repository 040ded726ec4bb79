/** The operator's example, run as its reader would run it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, test } from '@jest/globals'
import { listHeldKeys } from '../../src/messaging/index.ts'
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
  await db.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, state, next_attempt_at, reason)
     values ('relay', 'order.events', 'order', 'a', 'parked', now(), 'MESSAGE_TOO_LARGE'),
            ('summary', 'order.events', 'order', 'a', 'parked', now(), 'TypeError'),
            ('summary', 'order.events', 'order', 'b', 'backoff', now(), 'TypeError')`,
  )

  const listed = await heldKeys(url, 'list')
  expect(listed.out.split('\n').map((line) => JSON.parse(line))).toHaveLength(3)

  expect(await heldKeys(url, 'resume', 'a')).toMatchObject({ out: '', code: 1 })
  expect(await heldKeys(url, 'resume', 'a', 'summary')).toEqual({ out: 'requested', errors: '', code: 0 })
  expect(await heldKeys(url, 'skip', 'a', 'relay', 'order.events')).toMatchObject({ out: 'requested', code: 0 })
  expect(await heldKeys(url, 'resume', 'b')).toMatchObject({ out: 'not_applicable', code: 0 })

  const requests = (await listHeldKeys(db)).map(({ holder, aggregateId, request }) => [holder, aggregateId, request])
  expect(new Set(requests.map(String))).toEqual(new Set(['relay,a,skip', 'summary,a,resume', 'summary,b,']))
})
