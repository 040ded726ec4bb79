/** The example of traces and metrics in a service of one's own, run as its reader would run it. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { createTestDatabase } from '../support/database.ts'

test('the example has the span of its append and the gauges of its outbox', async () => {
  await using database = await createTestDatabase()

  const { stdout } = await promisify(execFile)(process.execPath, ['examples/observing.ts'], {
    env: { ...process.env, DATABASE_URL: database.url, OTEL_LOGS_EXPORTER: 'none' },
  })

  expect(stdout).toMatch(/^spans: create invoice\.events$/m)
  expect(stdout).toMatch(/^metrics: .*outbox\.enqueued\.messages.*outbox\.pending\.count/m)
})
