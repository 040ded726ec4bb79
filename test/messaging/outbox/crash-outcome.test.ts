/** What is said of a commit whose answer was lost with the server itself: a crash may forget a transaction, and give its number to another. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import knex, { type Knex } from 'knex'
import { type Postgres, startPostgres } from '../../../src/local/postgres.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { migrate } from '../../../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../../../src/messaging/schema/migration-files.ts'
import { orderEvent } from '../../support/events.ts'
import { createPostgresProxy } from '../../support/postgres-proxy.ts'
import { untilSession } from '../../support/sessions.ts'

const silent: Knex.Logger = { debug() {}, warn() {}, error() {}, deprecate() {} }
// Nothing reaches the disk before somebody waits for it.
const settings = { wal_writer_delay: '10s', autovacuum: 'off', checkpoint_timeout: '1h' }

const stack = new AsyncDisposableStack()
let postgres: Postgres
beforeAll(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'crash-outcome-'))
  stack.defer(() => rm(dir, { recursive: true }))
  postgres = await startPostgres({ dir, settings })
  stack.defer(() => rm(postgres.dir, { recursive: true, force: true }))
  stack.use(postgres)
  await using db = poolTo(postgres.url())
  await migrate(db, messagingMigrations, 'messaging')
  await db.schema.createTable('states', (table) => table.text('name'))
})
afterAll(() => stack.disposeAsync())

/** One connection at a time, whose history is known from the first transaction on. */
function poolTo(connection: string): Knex & AsyncDisposable {
  const pool = knex({ client: 'pg', connection, pool: { min: 0, max: 1 }, log: silent })
  return Object.assign(pool, { [Symbol.asyncDispose]: () => pool.destroy() })
}

async function crash(): Promise<void> {
  await postgres.kill('SIGQUIT')
  await postgres.start()
}

async function idOf(trx: Knex.Transaction): Promise<bigint> {
  const { rows } = await trx.raw('select pg_current_xact_id()::text as xid')
  return BigInt(rows[0].xid)
}

/** Commits transactions until one has had this number. */
async function useUp(xid: bigint): Promise<void> {
  await using db = poolTo(postgres.url())
  for (let used = 0n; used < xid; ) {
    const { rows } = await db.raw('select pg_current_xact_id()::text as xid')
    used = BigInt(rows[0].xid)
  }
}

test('F2 F4 a commit with an event that a crash has forgotten is not taken for the one that has its number now', async () => {
  await using db = poolTo(postgres.url())
  await inTransaction(db, (trx) => trx('states').insert({ name: 'first' }))

  const lost = inTransaction(db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('Lost')])
    const xid = await idOf(trx)
    await crash()
    await useUp(xid)
  })

  await expect(lost).rejects.toMatchObject({ code: 'MESSAGING_COMMIT_UNKNOWN' })
  await using other = poolTo(postgres.url())
  expect(await other('outbox').where({ event_type: 'Lost' })).toEqual([])
})

test('F2 F4 a commit without an event that a crash has forgotten is not taken for the one that has its number now', async () => {
  await using proxy = await createPostgresProxy(postgres.url())
  await using db = poolTo(proxy.url)
  await inTransaction(db, (trx) => trx('states').insert({ name: 'first' }))
  let xid = 0n
  const crashed = proxy.meet('COMMIT', 'request lost').then(async () => {
    proxy.refuseConnections(true)
    await crash()
    await useUp(xid)
    proxy.refuseConnections(false)
  })

  const lost = inTransaction(db, async (trx) => {
    await trx('states').insert({ name: 'lost' })
    xid = await idOf(trx)
  })

  await expect(lost).rejects.toMatchObject({ code: 'MESSAGING_COMMIT_UNKNOWN' })
  await crashed
  await using other = poolTo(postgres.url())
  expect(await other('states').where({ name: 'lost' })).toEqual([])
})

test('F2 F4 a commit that a crash has forgotten is a rollback as long as nobody has its number', async () => {
  await using db = poolTo(postgres.url())
  await inTransaction(db, (trx) => trx('states').insert({ name: 'first' }))

  const lost = inTransaction(db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('Lost')])
    await crash()
  })

  await expect(lost).rejects.toMatchObject({ code: 'MESSAGING_ROLLED_BACK' })
})

test('F2 a commit that goes on after its answer was lost is waited for, also where somebody has reset the statistics', async () => {
  await using proxy = await createPostgresProxy(postgres.url())
  await using db = poolTo(proxy.url)
  await using other = poolTo(postgres.url())
  await other.raw(`
    create function wait_at_commit() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(77); return null; end';
    create constraint trigger wait_at_commit after insert on states deferrable initially deferred
      for each row when (new.name = 'slow') execute function wait_at_commit()`)
  await inTransaction(db, (trx) => trx('states').insert({ name: 'first' }))
  await other.raw("select pg_stat_reset_shared('bgwriter'), pg_advisory_lock(77)")

  const slow = inTransaction(db, async (trx) => {
    await trx('states').insert({ name: 'slow' })
    await appendToOutbox(trx, [orderEvent('Slow')])
    return 'done'
  })
  await untilSession(other, "wait_event = 'advisory'")
  const asked = proxy.meet('select pg_xact_status', 'answer held')
  proxy.leadTo(postgres.url())
  await asked
  await other.raw('select pg_advisory_unlock(77)')
  proxy.release()

  expect(await slow).toBe('done')
  expect(await other('states').where({ name: 'slow' })).toHaveLength(1)
})

test('F2 F4 a commit that was stored before the crash is found by its event', async () => {
  await using proxy = await createPostgresProxy(postgres.url())
  await using db = poolTo(proxy.url)
  await inTransaction(db, (trx) => trx('states').insert({ name: 'first' }))
  const crashed = proxy.meet('COMMIT', 'answer lost').then(async () => {
    proxy.refuseConnections(true)
    await crash()
    proxy.refuseConnections(false)
  })

  const result = await inTransaction(db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('Stored')])
    return 'done'
  })

  await crashed
  expect(result).toBe('done')
  await using other = poolTo(postgres.url())
  expect(await other('outbox').where({ event_type: 'Stored' })).toHaveLength(1)
})
