/** In a process of its own: jest's `process` hears no warnings. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { createTestDatabase } from '../../support/database.ts'

const run = promisify(execFile)
const script = fileURLToPath(new URL('fixtures/concurrent-appends.ts', import.meta.url))

test('never gives the driver two statements at once, even when appends are not awaited one by one (PC-45)', async () => {
  await using database = await createTestDatabase()

  const { stderr } = await run(process.execPath, ['--throw-deprecation', script, database.url])

  expect(stderr).toBe('')
  expect(await database.db('outbox').orderBy('seq').pluck('event_type')).toEqual(['First', 'Second', 'Third'])
})
