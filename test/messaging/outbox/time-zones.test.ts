/** Processes of their own, since a process has one time zone. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { createTestDatabase } from '../../support/database.ts'

const run = promisify(execFile)
const script = fileURLToPath(new URL('fixtures/append-at.ts', import.meta.url))

test('stores one instant alike in every time zone, also at a change to summer time (PC-48)', async () => {
  await using database = await createTestDatabase()
  const zones = ['UTC', 'Europe/Berlin', 'America/St_Johns', 'Pacific/Apia']
  // In Berlin the clocks jump from two to three in this night.
  const time = '2026-03-29T01:30:00.123Z'

  const localHours: number[] = []
  for (const TZ of zones) {
    const { stdout } = await run(process.execPath, [script, database.url, time], { env: { ...process.env, TZ } })
    const [occurredAt, payload, hours] = JSON.parse(stdout)
    localHours.push(hours)
    expect([occurredAt, payload]).toEqual([time, `{"occurredAt": "${time}"}`])
  }

  expect(new Set(localHours).size).toBe(zones.length)
  const stored = await database.db('outbox').select(database.db.raw(`occurred_at = ? as same`, [time]))
  expect(stored).toEqual(zones.map(() => ({ same: true })))
})

test('no column keeps a time without its zone (PC-48)', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { rows } = await database.db.raw(
    `select distinct data_type
       from information_schema.columns
      where table_schema = current_schema()
        and (data_type like 'time%' or data_type = 'date')`,
  )

  expect(rows).toEqual([{ data_type: 'timestamp with time zone' }])
})
