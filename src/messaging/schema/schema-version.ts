/** The SQL on `schema_version`: which migrations of which component a schema has. One function, one statement. */
import type { Knex } from 'knex'

/** The newest migration that a schema has of one component. */
export interface AppliedVersion {
  readonly version: number
  /** The oldest release, by the newest migration that it brings, which works with this schema. */
  readonly compatibleFrom: number
}

/** Made by the runner and not by a migration: it has to be there before the first. */
export async function createSchemaVersion(trx: Knex.Transaction): Promise<void> {
  await trx.raw(
    `create table if not exists schema_version (
       component       text        not null,
       version         integer     not null check (version > 0),
       compatible_from integer     not null check (compatible_from > 0),
       applied_at      timestamptz not null default clock_timestamp(),
       primary key (component, version))`,
  )
}

/**
 * Waits for the sole right to migrate this schema, until the transaction ends.
 *
 * A lock of the transaction and not of the session: a killed runner leaves
 * none, and a pooler between us cannot mix it up. Runners in other schemas of
 * the database do not wait.
 */
export async function lockMigrations(trx: Knex.Transaction): Promise<void> {
  await trx.raw(
    `select pg_advisory_xact_lock(hashtextextended('graphql-outbox schema_version ' || current_schema(), 0))`,
  )
}

/** Whether `schema_version` is found through the search path, and where tables would be created; `null` if nowhere. */
export async function findSchema(db: Knex): Promise<{ readonly schema: string | null; readonly versioned: boolean }> {
  const { rows } = await db.raw<{ rows: { schema: string | null; versioned: boolean }[] }>(
    `select current_schema() as schema,
            to_regclass('schema_version') is not null as versioned`,
  )
  return rows[0] ?? { schema: null, versioned: false }
}

/** The newest applied version of `component`; `null` if none is. Served by the primary key. */
export async function selectVersion(db: Knex, component: string): Promise<AppliedVersion | null> {
  const { rows } = await db.raw<{ rows: AppliedVersion[] }>(
    `select version,
            compatible_from as "compatibleFrom"
       from schema_version
      where component = :component
      order by version desc
      limit 1`,
    { component },
  )
  return rows[0] ?? null
}

/** Records one applied migration. Unique by the primary key, should two runners ever hold different locks. */
export async function insertVersion(trx: Knex.Transaction, component: string, applied: AppliedVersion): Promise<void> {
  await trx.raw(
    `insert into schema_version (component, version, compatible_from)
     values (:component, :version, :compatibleFrom)`,
    { component, ...applied },
  )
}

/** Forgets one migration that was taken back. */
export async function deleteVersion(trx: Knex.Transaction, component: string, version: number): Promise<void> {
  await trx.raw(
    `delete from schema_version
      where component = :component
        and version = :version`,
    { component, version },
  )
}
