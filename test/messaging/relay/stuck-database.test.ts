import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { TestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'
import { createRelaySetting, owns } from './setting.ts'

/** Locks tables, so that every statement on them hangs, until the lock is disposed of. */
async function lockTables(database: TestDatabase, tables: string): Promise<AsyncDisposable> {
  const pool: Knex = database.createPool()
  const trx = await pool.transaction()
  await trx.raw(`lock table ${tables} in access exclusive mode`)
  return { [Symbol.asyncDispose]: async () => void (await trx.rollback()) }
}

test('a stop ends within its grace, whatever hangs in the database', async () => {
  await using setting = await createRelaySetting()
  const pool = setting.database.createPool()
  const relay = setting.start({ db: pool, graceMs: 500 })
  await owns(relay, 64)
  await using lock = await lockTables(setting.database, 'relay_workers, lane_leases, outbox, held_keys')
  void lock
  await eventually('the renewals hang', () => relay.status().problems.length > 0)

  // The tables stay locked, so that nothing but the grace can end it.
  await relay.stop()
})

test('a call that hangs is told while the leases are renewed all the time, and the relay goes on after it', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ db: setting.database.createPool() })
  await owns(relay, 64)
  await eventually('it is ready', () => relay.status().ready)
  {
    // What the renewals do not need, and a worker does.
    await using lock = await lockTables(setting.database, 'topics')
    void lock
    await setting.append(orderEvent('OrderPlaced'))
    await eventually('it is told', () =>
      relay.status().problems.some((problem) => problem.startsWith('The database has not answered the relay for')),
    )
    expect(relay.status().ready).toBe(false)
  }
  await setting.drained()
  await eventually('it is ready again', () => relay.status().ready)
})

test('goes on when the connections that its pool has fall silent, and new ones answer', async () => {
  await using setting = await createRelaySetting()
  await using proxy = await createPostgresProxy(setting.database.url)
  const connection = { connectionString: proxy.url, query_timeout: 1_000 }
  const pool = setting.database.createPool({ connection: connection as Knex.PgConnectionConfig })
  const relay = setting.start({ db: pool })
  await owns(relay, 64)
  await setting.append(orderEvent('OrderPlaced'))
  await setting.drained()

  proxy.hold('')
  await setting.append(orderEvent('OrderShipped'))

  await setting.drained()
})
