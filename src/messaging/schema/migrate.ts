/**
 * Brings a schema to this release: applies what is missing, in one transaction,
 * whoever else tries the same at the same time.
 *
 * One migrates, the others wait and find nothing left to do. A runner that is
 * killed leaves nothing: no half of a migration and no lock. It never waits long
 * for a table lock, since all later queries on that table would wait behind it:
 * it gives up, lets them through, and tries again.
 */
import type { Knex } from 'knex'
import { SchemaMismatchError } from '../errors.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import { systemClock } from '../lifecycle/clock.ts'
import { type Logger, silentLogger } from '../lifecycle/logger.ts'
import { requireKnown, requireLogger, requireText, requireWhole, usePostgres, withDefaults } from '../options.ts'
import { type Migration, readMigrations } from './migration-files.ts'
import {
  type AppliedVersion,
  createSchemaVersion,
  deleteVersion,
  findSchema,
  insertVersion,
  lockMigrations,
  selectVersion,
} from './schema-version.ts'

/** How a schema is migrated. */
export interface MigrateOptions {
  /** Told of each migration applied and of each wait. @defaultValue silent */
  readonly logger?: Logger
  /**
   * Milliseconds that one attempt waits for any lock. Queries that come behind
   * a waiting migration wait as long.
   * @defaultValue 2_000
   */
  readonly lockTimeoutMs?: number
  /**
   * Milliseconds after which it stops trying to get the locks.
   * @defaultValue 120_000
   */
  readonly giveUpAfterMs?: number
}

export const migrateDefaults = {
  logger: silentLogger,
  lockTimeoutMs: 2_000,
  giveUpAfterMs: 120_000,
} as const satisfies Required<MigrateOptions>

const BACKOFF = { firstMs: 200, maxMs: 5_000 }

/**
 * Applies the migrations in `folder` that the schema lacks of `component`;
 * resolves to their names. The schema is the first of the connection's search
 * path. Safe to call from any number of processes at once.
 *
 * Throws {@link SchemaMismatchError} when the schema is newer than this release
 * and too new for it, or when there is no schema; the database's error as it is
 * when a migration fails, or when locks could not be had in time (55P03).
 */
export async function migrate(
  db: Knex,
  folder: URL,
  component: string,
  options: MigrateOptions = {},
): Promise<readonly string[]> {
  usePostgres(db)
  const migrations = await readMigrations(folder)
  return await withLocks(db, component, options, async (trx, logger) => {
    const applied = await selectVersion(trx, component)
    refuseTooOld(component, migrations, applied)
    const missing = migrations.slice(applied?.version ?? 0)
    for (const migration of missing) {
      await runScript(trx, migration.up)
      await insertVersion(trx, component, migration)
      logger.info({ component, migration: migration.name }, 'Applied a migration')
    }
    return missing.map(({ name }) => name)
  })
}

/**
 * Takes back the migrations of `component` above version `to`, newest first, and
 * their data with them; resolves to their names. For tests and development.
 */
export async function migrateDown(
  db: Knex,
  folder: URL,
  component: string,
  { to = 0, ...options }: MigrateOptions & { readonly to?: number } = {},
): Promise<readonly string[]> {
  usePostgres(db)
  const migrations = await readMigrations(folder)
  return await withLocks(db, component, options, async (trx, logger) => {
    const applied = await selectVersion(trx, component)
    const undone = migrations.slice(to, applied?.version ?? 0).reverse()
    for (const { name, version, down } of undone) {
      if (down === null) throw new SchemaMismatchError(`Migration ${name} of ${component} cannot be taken back`)
      await runScript(trx, down)
      await deleteVersion(trx, component, version)
      logger.info({ component, migration: name }, 'Took a migration back')
    }
    return undone.map(({ name }) => name)
  })
}

/** Throws {@link SchemaMismatchError} if `applied` says that a release with these migrations cannot work with it. */
export function refuseTooOld(
  component: string,
  migrations: readonly Migration[],
  applied: AppliedVersion | null,
): void {
  if (applied === null || applied.compatibleFrom <= migrations.length) return
  throw new SchemaMismatchError(
    `This release is too old for the database: it knows migrations of ${component} up to ${migrations.length}, ` +
      `the schema is at ${applied.version} and needs a release that knows ${applied.compatibleFrom}. Start a newer release`,
  )
}

async function withLocks<T>(
  db: Knex,
  component: string,
  options: MigrateOptions,
  work: (trx: Knex.Transaction, logger: Logger) => Promise<T>,
): Promise<T> {
  requireText('component', component, "the name under which the schema's version is kept, as 'messaging'")
  requireKnown(options, migrateDefaults)
  requireLogger(options.logger)
  for (const option of ['lockTimeoutMs', 'giveUpAfterMs'] as const)
    requireWhole(option, options[option] ?? migrateDefaults[option])
  const { logger, lockTimeoutMs, giveUpAfterMs } = withDefaults<MigrateOptions, keyof MigrateOptions>(
    options,
    migrateDefaults,
  )
  const clock = systemClock
  const deadline = clock.now() + giveUpAfterMs
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await db.transaction(async (trx) => {
        await trx.raw(`select set_config('lock_timeout', :timeout, true)`, { timeout: `${lockTimeoutMs}ms` })
        await requireSchema(trx)
        await lockMigrations(trx)
        await createSchemaVersion(trx)
        return await work(trx, logger)
      })
    } catch (error) {
      const pauseMs = backoffMs(BACKOFF, attempt, clock.random())
      if (!isLockTimeout(error) || clock.now() + pauseMs > deadline) throw error
      logger.warn(
        { component, attempt, pauseMs, waitedMs: lockTimeoutMs },
        'A lock that a migration needs is held by another transaction; letting others pass, then trying again',
      )
      await clock.pause(pauseMs, new AbortController().signal)
    }
  }
}

async function requireSchema(trx: Knex.Transaction): Promise<void> {
  const { schema } = await findSchema(trx)
  if (schema !== null) return
  throw new SchemaMismatchError(
    'No schema of the search path exists: create it first (create schema ...), or change searchPath in the Knex configuration',
  )
}

/** Several statements at once: the simple protocol, no bindings. Knex would take a question mark for one. */
async function runScript(trx: Knex.Transaction, script: string): Promise<void> {
  await trx.raw(script.replaceAll('?', '\\?'))
}

function isLockTimeout(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'code' in error && error.code === '55P03'
}
