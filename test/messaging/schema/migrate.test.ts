/** Migrations: applied once by whoever comes first, whole or not at all, and never in anybody's way for long. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { migrate, migrateDown } from '../../../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../../../src/messaging/schema/migration-files.ts'
import { createTestDatabase } from '../../support/database.ts'
import { untilSession } from '../../support/sessions.ts'

/** A folder of migrations, by file name, that goes with its scope. */
async function folderOf(files: Record<string, string>): Promise<AsyncDisposable & { url: URL }> {
  const path = await mkdtemp(join(tmpdir(), 'graphql-outbox-migrations-'))
  for (const [name, sql] of Object.entries(files)) await writeFile(join(path, name), sql)
  return {
    url: pathToFileURL(`${path}/`),
    [Symbol.asyncDispose]: () => rm(path, { recursive: true }),
  }
}

/** Tables, columns, indexes and constraints of the current schema, as text. */
async function shapeOf(db: Knex): Promise<string[]> {
  const { rows } = await db.raw(
    `select format('column %s.%s %s', table_name, column_name, data_type) as part
       from information_schema.columns
      where table_schema = current_schema()
     union all
     select indexdef
       from pg_indexes
      where schemaname = current_schema()
     union all
     select format('%s %s', conname, pg_get_constraintdef(oid))
       from pg_constraint
      where connamespace = quote_ident(current_schema())::regnamespace
      order by 1`,
  )
  return rows.map(({ part }: { part: string }) => part)
}

const versionsOf = (db: Knex, component: string) =>
  db('schema_version').where({ component }).orderBy('version').pluck('version')

test('brings the library up, down and up again to the same shape', async () => {
  await using database = await createTestDatabase({ empty: true })
  const { db } = database

  const applied = await migrate(db, messagingMigrations, 'messaging')
  const shape = await shapeOf(db)
  const undone = await migrateDown(db, messagingMigrations, 'messaging')
  const bare = await shapeOf(db)
  await migrate(db, messagingMigrations, 'messaging')

  expect(applied[0]).toBe('0001_outbox')
  expect(undone).toEqual(applied.toReversed())
  expect(bare.filter((part) => !part.includes('schema_version'))).toEqual([])
  expect(await shapeOf(db)).toEqual(shape)
})

test('does nothing the second time', async () => {
  await using database = await createTestDatabase()

  expect(await migrate(database.db, messagingMigrations, 'messaging')).toEqual([])
})

test('applies each migration once when five instances start together on an empty database (PC-80)', async () => {
  await using database = await createTestDatabase({ empty: true })
  const instances = Array.from({ length: 5 }, () => database.createPool())

  const applied = await Promise.all(instances.map((db) => migrate(db, messagingMigrations, 'messaging')))

  const names = applied.flat()
  expect(new Set(names).size).toBe(names.length)
  expect(await versionsOf(database.db, 'messaging')).toEqual(names.map((_, index) => index + 1))
})

test('leaves nothing of a migration whose instance was killed, and the next one succeeds (PC-80)', async () => {
  await using database = await createTestDatabase({ empty: true })
  await using folder = await folderOf({
    '0001_first.up.sql': 'create table first (n integer); insert into first values (1)',
    '0002_slow.up.sql': `create table slow (n integer);
                         select pg_sleep(60) where current_setting('application_name') = 'doomed'`,
  })
  const doomed = database.createPool({ connection: `${database.url}?application_name=doomed` })

  const dying = migrate(doomed, folder.url, 'test')
  dying.catch(() => {})
  const doomedPid = await untilSession(database.db, `application_name = 'doomed' and wait_event = 'PgSleep'`)
  const waiting = migrate(database.createPool(), folder.url, 'test')
  await untilSession(database.db, `wait_event_type = 'Lock' and wait_event = 'advisory'`)
  await database.db.raw('select pg_terminate_backend(?)', [doomedPid])

  await expect(dying).rejects.toThrow()
  expect(await waiting).toEqual(['0001_first', '0002_slow'])
  expect(await database.db('first').pluck('n')).toEqual([1])
})

test('leaves nothing of a migration that fails', async () => {
  await using database = await createTestDatabase({ empty: true })
  await using folder = await folderOf({
    '0001_good.up.sql': 'create table good ()',
    '0002_bad.up.sql': 'create table bad (); select 1 / 0',
  })

  await expect(migrate(database.db, folder.url, 'test')).rejects.toMatchObject({ code: '22012' })

  expect(await shapeOf(database.db)).toEqual([])
})

test('lets others pass while a table that it needs is locked, tells of it, and succeeds afterwards (PC-81)', async () => {
  await using database = await createTestDatabase()
  await using folder = await folderOf({ '0001_widen.up.sql': 'alter table outbox add column extra text' })
  const waits: object[] = []
  const waited = Promise.withResolvers<void>()
  const logger = {
    ...silentLogger,
    warn(fields: object) {
      waits.push(fields)
      if (waits.length === 2) waited.resolve()
    },
  }
  const blocking = Promise.withResolvers<void>()
  const locked = Promise.withResolvers<void>()
  const holder = database.db.transaction(async (trx) => {
    await trx('outbox').select('id')
    locked.resolve()
    await blocking.promise
  })
  await locked.promise

  const migrating = migrate(database.createPool(), folder.url, 'test', { logger, lockTimeoutMs: 50 })
  await waited.promise
  const [row] = await database.db('outbox').count({ count: '*' })
  blocking.resolve()
  await holder

  expect(row?.count).toBe('0')
  expect(await migrating).toEqual(['0001_widen'])
  expect(waits[0]).toMatchObject({ component: 'test', attempt: 1, waitedMs: 50 })
})

test('gives up in the end when a lock is never free (PC-81)', async () => {
  await using database = await createTestDatabase()
  await using folder = await folderOf({ '0001_widen.up.sql': 'alter table outbox add column extra text' })
  const blocking = Promise.withResolvers<void>()
  const locked = Promise.withResolvers<void>()
  const holder = database.db.transaction(async (trx) => {
    await trx('outbox').select('id')
    locked.resolve()
    await blocking.promise
  })
  await locked.promise

  const migrating = migrate(database.createPool(), folder.url, 'test', { lockTimeoutMs: 20, giveUpAfterMs: 300 })

  await expect(migrating).rejects.toMatchObject({ code: '55P03' })
  blocking.resolve()
  await holder
})

test('refuses to run for a release that the schema says is too old for it', async () => {
  await using database = await createTestDatabase({ empty: true })
  const one = { '0001_a.up.sql': 'create table a ()' }
  await using older = await folderOf(one)
  await using newer = await folderOf({ ...one, '0002_b.up.sql': '-- compatible from: 2\ncreate table b ()' })
  await migrate(database.db, newer.url, 'test')

  const call = migrate(database.db, older.url, 'test')

  await expect(call).rejects.toMatchObject({ code: 'MESSAGING_SCHEMA_MISMATCH' })
  await expect(call).rejects.toThrow('too old')
})

test('does nothing on a newer schema that this release can work with', async () => {
  await using database = await createTestDatabase({ empty: true })
  const one = { '0001_a.up.sql': 'create table a ()' }
  await using older = await folderOf(one)
  await using newer = await folderOf({ ...one, '0002_b.up.sql': 'create table b ()' })
  await migrate(database.db, newer.url, 'test')

  expect(await migrate(database.db, older.url, 'test')).toEqual([])
})

test('keeps components, and schemas by search path, apart', async () => {
  await using database = await createTestDatabase({ empty: true })
  await database.db.raw('create schema tenant_a; create schema "tenant B"')
  const [a, b] = ['tenant_a', 'tenant B'].map((searchPath) => database.createPool({ searchPath }))
  await using folder = await folderOf({ '0001_a.up.sql': 'create table a ()' })
  if (!(a && b)) throw new Error('two pools were made')

  await Promise.all([
    migrate(a, messagingMigrations, 'messaging'),
    migrate(b, messagingMigrations, 'messaging'),
    migrate(a, folder.url, 'test'),
  ])

  expect(await versionsOf(a, 'test')).toEqual([1])
  expect(await versionsOf(b, 'test')).toEqual([])
  expect(await versionsOf(b, 'messaging')).toEqual(await versionsOf(a, 'messaging'))
  expect((await shapeOf(b)).length).toBe((await shapeOf(a)).length)
  expect(await shapeOf(database.db)).toEqual([])
})

test('says that the schema is missing when the search path leads nowhere', async () => {
  await using database = await createTestDatabase({ empty: true })
  const db = database.createPool({ searchPath: 'nowhere' })

  await expect(migrate(db, messagingMigrations, 'messaging')).rejects.toMatchObject({
    code: 'MESSAGING_SCHEMA_MISMATCH',
  })
})

test('takes a question mark in a migration for what it is', async () => {
  await using database = await createTestDatabase({ empty: true })
  await using folder = await folderOf({
    '0001_a.up.sql': `create table a as select '{"b": 1}'::jsonb ? 'b' as has, 'why?' as text`,
  })

  await migrate(database.db, folder.url, 'test')

  expect(await database.db('a').select('has', 'text')).toEqual([{ has: true, text: 'why?' }])
})

test('refuses a folder whose numbers have a gap', async () => {
  await using database = await createTestDatabase({ empty: true })
  await using folder = await folderOf({ '0001_a.up.sql': '', '0003_c.up.sql': '' })

  await expect(migrate(database.db, folder.url, 'test')).rejects.toMatchObject({ code: 'MESSAGING_INVALID_OPTION' })
})

test('refuses to take back what has no way back', async () => {
  await using database = await createTestDatabase({ empty: true })
  await using folder = await folderOf({ '0001_a.up.sql': 'create table a ()' })
  await migrate(database.db, folder.url, 'test')

  await expect(migrateDown(database.db, folder.url, 'test')).rejects.toThrow('cannot be taken back')
})
