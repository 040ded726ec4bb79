/**
 * Sees to it that a connection is lent again only once its transaction has ended.
 *
 * Knex gives up waiting for ROLLBACK after five seconds, and calls back also
 * where BEGIN has failed, or was given up and takes effect later. The next
 * transaction on that connection would run within the old one, and commit what
 * was to be undone.
 */
import type { Knex } from 'knex'
import { NotInTransactionError } from '../errors.ts'
import { type ConnectionWatch, connectionOf, type PostgresConnection, UNCLEAN, watchConnection } from './connection.ts'

/** A transaction's connection, and what is seen of it. */
export interface CleanConnection {
  readonly connection: PostgresConnection
  readonly watch: ConnectionWatch
}

/**
 * Has the connection of `trx` cut where it is not idle when that ends, and its
 * locks with it: the pool alone would notice only when it lends it again. Throws
 * {@link NotInTransactionError} where `trx` could not begin; Knex rejects with why.
 */
export async function keepClean(trx: Knex.Transaction): Promise<CleanConnection> {
  const connection = await connectionOf(trx)
  const watch = watchConnection(connection)
  if (trx.isCompleted()) {
    watch.cut(UNCLEAN)
    throw new NotInTransactionError('it could not begin', null)
  }
  const check = () => {
    if (!watch.isIdle) watch.cut(UNCLEAN)
  }
  // Runs before the connection is back in the pool, which takes more turns of the promise queue.
  trx.executionPromise.then(check, check)
  return { connection, watch }
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
