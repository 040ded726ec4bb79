/** Notifications are a hint: a connection that brings none is found out, and another is opened. */
import { expect, test } from '@jest/globals'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'
import { startListener } from './setting.ts'

/** Probes a hundred times as often as a service does. */
const hasty = { ...systemClock, pause: (ms: number, signal: AbortSignal) => systemClock.pause(ms / 100, signal) }

test('PC-26 a LISTEN connection that has fallen silent is noticed within seconds, said, and replaced', async () => {
  await using database = await createTestDatabase()
  await using proxy = await createPostgresProxy(database.url)
  const pool = database.createPool({ connection: proxy.url })
  const woken: number[] = []
  const said: string[] = []
  const logger = { ...silentLogger, warn: (_fields: object, message: string) => said.push(message) }
  const onWake = (lanes: readonly number[]) => woken.push(...lanes)
  await using listener = startListener({ db: pool, clock: hasty, logger, onWake })
  await eventually('it listens', () => listener.listening)

  proxy.hold('listen')
  await eventually('the silence is noticed', () => said.length > 0)
  await eventually('it listens again', () => listener.listening)
  await database.db.raw(`notify outbox_wake, '8'`)
  await eventually('it hears', () => woken.length > 0)

  expect(woken).toEqual([3])
  expect(said).toEqual(['Notifications do not arrive; polling until they do'])
})

/** Comes to no second probe. */
const unprobed = {
  ...systemClock,
  pause: (ms: number, signal: AbortSignal) => systemClock.pause(ms === 10_000 ? 2 ** 31 - 1 : ms, signal),
}

test('PC-26 a LISTEN connection that the server has ended is replaced without waiting for a probe', async () => {
  await using database = await createTestDatabase()
  const woken: number[] = []
  const said: string[] = []
  const logger = { ...silentLogger, warn: (_fields: object, message: string) => said.push(message) }
  const onWake = (lanes: readonly number[]) => woken.push(...lanes)
  await using listener = startListener({ db: database.createPool(), clock: unprobed, logger, onWake })
  await eventually('it listens', () => listener.listening)

  await database.db.raw(
    `select pg_terminate_backend(pid)
       from pg_stat_activity
      where datname = current_database()
        and query like 'listen %'`,
  )
  await eventually('the end is noticed', () => said.length > 0)
  await eventually('it listens again', () => listener.listening)
  await database.db.raw(`notify outbox_wake, '8'`)
  await eventually('it hears', () => woken.length > 0)

  expect(woken).toEqual([3])
  expect(said).toEqual(['Notifications do not arrive; polling until they do'])
})
