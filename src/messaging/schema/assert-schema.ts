/** Refuses to start on a schema that does not fit this release. The library never migrates by itself. */
import type { Knex } from 'knex'
import { MIGRATE, SchemaMismatchError } from '../errors.ts'
import { usePostgres } from '../options.ts'
import { refuseTooOld } from './migrate.ts'
import { messagingMigrations, readMigrations } from './migration-files.ts'
import { findSchema, selectVersion } from './schema-version.ts'

const COMPONENT = 'messaging'

/**
 * Resolves if the library's tables, as found through the search path of `db`,
 * are those of this release or of a later one that this release can work with.
 * Throws {@link SchemaMismatchError}, with the command that mends it, otherwise.
 */
export async function assertSchema(db: Knex): Promise<void> {
  usePostgres(db)
  const migrations = await readMigrations(messagingMigrations)
  const { schema, versioned } = await findSchema(db)
  if (schema === null || !versioned) {
    throw new SchemaMismatchError(
      `The database has no outbox in its search path (${schema === null ? 'no schema of it exists' : `schema ${schema}`}); ${MIGRATE}`,
    )
  }

  const applied = await selectVersion(db, COMPONENT)
  refuseTooOld(COMPONENT, migrations, applied)
  const version = applied?.version ?? 0
  if (version < migrations.length) {
    throw new SchemaMismatchError(
      `The outbox in schema ${schema} is at migration ${version} of the ${migrations.length} that this release needs; ${MIGRATE}`,
    )
  }
}
