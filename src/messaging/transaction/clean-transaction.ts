/**
 * Sees to it that a connection is lent again only once its transaction has ended.
 *
 * Knex gives up waiting for ROLLBACK after five seconds, and a timeout of the
 * client (`query_timeout`) leaves its statement running and drops the ROLLBACK
 * that waits behind it. The next transaction on that connection would run within
 * the old one, and commit what was to be undone.
 */
import type { Knex } from 'knex'
import { connectionOf, idleness, type PostgresConnection } from './connection.ts'

const UNCLEAN = 'the transaction on it was not seen to end'

/** A transaction's connection, and whether the server says that no transaction is open on it. */
export interface CleanConnection {
  readonly connection: PostgresConnection
  readonly idle: { readonly now: boolean }
}

/** Has the connection of `trx` destroyed and not lent again where it is not idle when that ends. */
export async function keepClean(trx: Knex.Transaction): Promise<CleanConnection> {
  const connection = await connectionOf(trx)
  const idle = idleness(connection)
  const check = () => {
    if (!idle.now) connection.__knex__disposed ??= UNCLEAN
  }
  // Runs before the connection is back in the pool, which takes more turns of the promise queue.
  trx.executionPromise.then(check, check)
  return { connection, idle }
}

/** Whether {@link keepClean} had it destroyed, and not something that ended it. */
export function wasUnclean({ __knex__disposed: disposed }: PostgresConnection): boolean {
  return disposed === UNCLEAN
}

/** Runs `work` as `db.transaction` does, and leaves no transaction open behind it. */
export async function cleanTransaction<T>(
  db: Knex,
  work: (trx: Knex.Transaction) => Promise<T>,
  config: Knex.TransactionConfig = {},
): Promise<T> {
  return await db.transaction(async (trx) => {
    await keepClean(trx)
    return await work(trx)
  }, config)
}
