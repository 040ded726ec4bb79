/** What a transaction leaves running when it fails ends no process. Processes of their own: they would end. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { createTestDatabase } from '../../support/database.ts'

const run = promisify(execFile)
const program = fileURLToPath(new URL('fixtures/left-running.ts', import.meta.url))

test.each([
  ['an append that is not awaited when the callback fails', 'append', 'refused'],
  ['a savepoint that is not awaited when the callback fails', 'savepoint', 'refused'],
  ['an append in a savepoint that is not awaited', 'nested append', 'refused'],
  ['an append in a savepoint of Knex that is not awaited', 'append in a savepoint of Knex', 'refused'],
  ['a processOnce that is not awaited when the callback fails', 'once', 'refused'],
  [
    'a rollback by a timer, which is refused and dooms the transaction',
    'watchdog',
    'callback called commit or rollback',
  ],
])('%s ends no process', async (_what, way, reason) => {
  await using database = await createTestDatabase()

  const { stdout } = await run(process.execPath, [program, database.url, way])

  expect(stdout).toMatch(new RegExp(`${reason}.*\ngoes on\n$`))
  expect(await database.db('outbox')).toEqual([])
})
