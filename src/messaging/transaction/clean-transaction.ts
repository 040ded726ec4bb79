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
import { type ConnectionWatch, connectionOf, UNCLEAN, watchConnection } from './connection.ts'

/**
 * Has the connection of `trx` cut where it is not idle when that ends, and its
 * locks with it: the pool alone would notice only when it lends it again. Resolves to what is seen
 * of that connection. Throws
 * {@link NotInTransactionError} where `trx` could not begin; Knex rejects with why.
 */
export async function keepClean(trx: Knex.Transaction): Promise<ConnectionWatch> {
  const watch = watchConnection(await connectionOf(trx))
  if (trx.isCompleted()) {
    watch.cut(UNCLEAN)
    throw new NotInTransactionError('it could not begin', null)
  }
  const check = () => {
    if (!watch.isIdle) watch.cut(UNCLEAN)
  }
  // Runs before the connection is back in the pool, which takes more turns of the promise queue.
  trx.executionPromise.then(check, check)
  return watch
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
