/** Everything through PgBouncer in transaction mode: few server connections, a different one for each transaction. */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startWakeNotifier } from '../../../src/messaging/outbox/wake-notifier.ts'
import { migrate } from '../../../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../../../src/messaging/schema/migration-files.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { type PgBouncer, pgbouncerPath, startPgBouncer } from '../../support/pgbouncer.ts'
import { recordOf } from '../consumer/scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, writeEffect } from '../consumer/setting.ts'
import { createRelaySetting, idsOn, owns, startListener, typesOf } from './setting.ts'

// In CI it is installed: a missing one fails there, and is never skipped.
const withPooler = pgbouncerPath !== null || process.env.CI ? test : test.skip

const pooled = (pooler: PgBouncer, { url, createPool }: TestDatabase) =>
  createPool({ connection: pooler.url(new URL(url).pathname.slice(1)) })

withPooler('PC-42 two relays publish each event once and in order', async () => {
  await using pooler = await startPgBouncer()
  await using setting = await createRelaySetting()
  const [writer, one, two] = [1, 2, 3].map(() => pooled(pooler, setting.database))
  if (!writer || !one || !two) throw new Error('There are three pools')
  await using _notifier = startWakeNotifier(writer)
  const relays = [setting.start({ db: one }), setting.start({ db: two })]
  await Promise.all(relays.map((relay) => owns(relay, 32)))

  const keys = Array.from({ length: 30 }, () => randomUUID())
  for (let step = 0; step < 10; step += 1) {
    await Promise.all(
      keys.map((key) => inTransaction(writer, (trx) => appendToOutbox(trx, [orderEvent(`Step${step}`, key)]))),
    )
  }
  await setting.drained()

  const inOrder = Array.from({ length: 10 }, (_, step) => `Step${step}`)
  for (const key of keys) expect(typesOf(setting.broker, key)).toEqual(inOrder)
  expect(idsOn(setting.broker)).toHaveLength(300)
  await eventually('both are ready', () => relays.every((relay) => relay.status().ready))
})

withPooler('PC-26 a listener behind it knows that no notification arrives, and says so once', async () => {
  await using pooler = await startPgBouncer(1)
  await using database = await createTestDatabase()
  const said: string[] = []
  const logger = { ...silentLogger, warn: (_fields: object, message: string) => said.push(message) }
  const clock = { ...systemClock, pause: (ms: number, signal: AbortSignal) => systemClock.pause(ms / 100, signal) }
  const db = pooled(pooler, database)
  // Whether it takes itself for a listener, whenever it probes: that goes on as long as it does.
  const listened: boolean[] = []
  db.on('query', () => listened.push(listener.listening))
  await using listener = startListener({ db, clock, logger, onWake: () => {} })

  await eventually('it has tried again and again', () => listened.length >= 3)

  expect(listened).toEqual(listened.map(() => false))
  expect(said).toEqual(['Notifications do not arrive; polling until they do'])
})

withPooler('PC-42 a consumer applies each effect once, also when a handler must be cut off', async () => {
  await using pooler = await startPgBouncer()
  await using direct = await createSetting()
  const hung = recordOf(3)
  let calls = 0
  await using through = await joinSetting(
    direct,
    async (trx, event) => {
      await writeEffect(trx, event)
      if (event.id === idOf(hung) && ++calls === 1) await trx.raw('select pg_sleep(600)')
    },
    // On a busy machine a handler that is well may be cut off too: that is no reason to park.
    { db: pooled(pooler, direct.database), handlerTimeoutMs: 1_000, maxAttempts: Number.POSITIVE_INFINITY },
  )
  const records = [recordOf(0), recordOf(1), recordOf(2), hung, recordOf(4)]

  await through.subscriber.deliverAll(records)
  await through.subscriber.deliverAll(records)

  expect([...(await direct.effects())].sort()).toEqual(records.map(idOf).sort())
})

withPooler('PC-42 PC-80 instances that migrate at once by way of it apply each migration once', async () => {
  await using pooler = await startPgBouncer()
  await using database = await createTestDatabase({ empty: true })
  const instances = Array.from({ length: 3 }, () => pooled(pooler, database))

  const applied = await Promise.all(instances.map((db) => migrate(db, messagingMigrations, 'messaging')))

  expect(new Set(applied.flat()).size).toBe(applied.flat().length)
  await eventually('the tables are there', async () => (await database.db('lane_leases')).length === 64)
})
