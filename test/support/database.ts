/**
 * A migrated database for one test, cloned from a template: some tens of
 * milliseconds. The template is made once per run and per state of the
 * migrations, by whichever test process comes first.
 */
import { createHash, randomBytes } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import knex, { type Knex } from 'knex'
import { migrate } from '../../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../../src/messaging/schema/migration-files.ts'
import { testPostgresUrl } from './postgres.ts'

// Knex tells of broken connections on the console; tests break them on purpose.
const silent: Knex.Logger = { debug() {}, warn() {}, error() {}, deprecate() {} }

const ordersMigrations = new URL('../../migrations/orders/', import.meta.url)

/** Milliseconds that a pool may take to close. One waits for ever for a transaction that a failed test has left open. */
const CLOSING_MS = 5_000

/** A database that is dropped, and whose pools are closed, when it goes out of scope, whatever is still open in it. */
export interface TestDatabase extends AsyncDisposable {
  /** A pool of up to ten connections. */
  readonly db: Knex
  readonly url: string
  /** Another pool to the same database, closed with it. */
  createPool(options?: Knex.Config): Knex
}

export interface TestDatabaseOptions {
  /** Whether it has the example domain's tables. @defaultValue false */
  readonly orders?: boolean
  /** Without any table, for tests of the migrations. @defaultValue false */
  readonly empty?: boolean
}

/** Makes a database of its own for a test. */
export async function createTestDatabase(options: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString('hex')}`
  await withServer(async (server) => {
    const template = options.empty ? 'template0' : await templateOf(server, options.orders ?? false)
    await server.raw('create database ?? template ??', [name, template])
  })

  const url = testPostgresUrl(name)
  const pools: Knex[] = []
  const createPool = (config: Knex.Config = {}): Knex => {
    const pool = knex({ client: 'pg', connection: url, pool: { min: 0, max: 10 }, log: silent, ...config })
    pools.push(pool)
    return pool
  }
  return {
    db: createPool(),
    url,
    createPool,
    async [Symbol.asyncDispose]() {
      const patience = new AbortController()
      const closed = Promise.all(pools.map((pool) => pool.destroy())).finally(() => patience.abort())
      await Promise.race([closed, sleep(CLOSING_MS, undefined, { signal: patience.signal }).catch(() => {})])
      // Ends every session that is left.
      await withServer((server) => server.raw('drop database ?? with (force)', [name]))
    },
  }
}

const templates = new Map<boolean, Promise<string>>()

/** The name of the template with these tables, made by this process at most once. */
async function templateOf(server: Knex, orders: boolean): Promise<string> {
  const name = templates.get(orders) ?? prepareTemplate(server, orders)
  templates.set(orders, name)
  return await name
}

/** The template's name holds a digest of the migrations, so a changed one makes another. */
async function prepareTemplate(server: Knex, orders: boolean): Promise<string> {
  const folders = orders ? [messagingMigrations, ordersMigrations] : [messagingMigrations]
  const name = `template_${orders ? 'orders' : 'messaging'}_${await digest(folders)}`
  const draft = `${name}_draft`
  await server.transaction(async (trx) => {
    await trx.raw('select pg_advisory_xact_lock(hashtext(?))', [name])
    const { rows } = await trx.raw('select 1 from pg_database where datname = ?', [name])
    if (rows.length > 0) return
    // Not in the transaction, which only holds the lock; a draft that was left is of a killed test process.
    await server.raw('drop database if exists ?? with (force)', [draft])
    await server.raw('create database ??', [draft])
    const db = knex({ client: 'pg', connection: testPostgresUrl(draft), pool: { min: 0, max: 1 } })
    try {
      await migrate(db, messagingMigrations, 'messaging')
      if (orders) await migrate(db, ordersMigrations, 'orders')
    } finally {
      await db.destroy()
    }
    await server.raw('alter database ?? rename to ??', [draft, name])
  })
  return name
}

async function digest(folders: readonly URL[]): Promise<string> {
  const hash = createHash('sha256')
  for (const folder of folders) {
    for (const file of (await readdir(folder)).sort()) hash.update(await readFile(new URL(file, folder)))
  }
  return hash.digest('hex').slice(0, 12)
}

async function withServer<T>(work: (server: Knex) => Promise<T>): Promise<T> {
  const server = knex({ client: 'pg', connection: testPostgresUrl(), pool: { min: 0, max: 2 } })
  try {
    return await work(server)
  } finally {
    await server.destroy()
  }
}
