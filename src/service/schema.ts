/** Brings the database to this release at the start of the process, or only sees that it fits. */
import { assertSchema, type Logger, messagingMigrations, migrate } from '../messaging/index.ts'
import type { ServiceConfig } from './config.ts'
import { createDatabase } from './database.ts'

const ordersMigrations = new URL('../../migrations/orders/', import.meta.url)

/**
 * Applies what is missing, or with `DATABASE_MIGRATE=false` only checks. Any
 * number of processes may do this at once: one migrates, the others wait.
 * Rejects with `SchemaMismatchError` when the schema does not fit this release,
 * and with the database's own error when it cannot be reached.
 */
export async function prepareSchema({ database }: Pick<ServiceConfig, 'database'>, logger: Logger): Promise<void> {
  const db = createDatabase(database.connection, 'migration', logger)
  try {
    if (database.migrate) {
      await migrate(db, messagingMigrations, 'messaging', { logger })
      await migrate(db, ordersMigrations, 'orders', { logger })
    }
    await assertSchema(db)
  } finally {
    await db.destroy()
  }
}
