/**
 * The one way to run a transaction that cannot report a commit that was a
 * rollback, nor a rollback that was a commit.
 *
 * Knex resolves when COMMIT is answered by ROLLBACK, and rejects alike for a
 * commit that failed and for one whose answer was lost. Here the three outcomes
 * are told apart: it resolves if the transaction committed, rejects with
 * `CommitUnknownError` if nobody knows, and rejects with anything else if it
 * did not commit.
 */
import type { Knex } from 'knex'
import { CommitUnknownError, InvalidOptionError, NotInTransactionError, RolledBackError } from '../errors.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import { systemClock } from '../lifecycle/clock.ts'
import { requireFunction, requireKnown, requireLive, usePostgres } from '../options.ts'
import { keepClean } from '../transaction/clean-transaction.ts'
import { type ConnectionWatch, commandOf } from '../transaction/connection.ts'
import { type GuardedCall, guardOf, handOut, type TransactionGuard } from '../transaction/guard.ts'
import { type DoubtfulCommit, historyOf, settleCommit } from './commit-outcome.ts'
import { adopt, type Enlistment } from './enlistment.ts'
import { selectTransactionId } from './queries.ts'

/** How a transaction runs. */
export interface TransactionOptions {
  /**
   * What the transaction sees of others. Higher levels fail more often
   * (SQLSTATE 40001) and are then to be tried again.
   * @defaultValue the database's own, normally `read committed`
   */
  readonly isolation?: 'read committed' | 'repeatable read' | 'serializable'
  /**
   * How often `work` runs again after a deadlock or a serialization failure,
   * which certainly changed nothing. Whatever `work` does outside the
   * transaction is then done again.
   * @defaultValue 0
   */
  readonly retries?: number
}

const ISOLATIONS: ReadonlySet<string> = new Set(['read committed', 'repeatable read', 'serializable'])

const RETRY_BACKOFF = { firstMs: 10, maxMs: 500 }

/**
 * Runs `work` in a transaction and resolves to its result once that has
 * committed. Relays in this process then look at the lanes concerned at once.
 *
 * Given a transaction as `db`, it is a savepoint in it, and is tried once. Otherwise rejects with
 * {@link RolledBackError} when a statement had failed and `work` swallowed the
 * error, or the connection was lost before COMMIT took effect; with
 * {@link CommitUnknownError} when the answer to COMMIT was lost and could not be
 * found out within three seconds, or not at all after a crash of the server; and with what `work` rejected with. Serialization
 * failures and deadlocks are reported, unless `retries` are allowed. Refuses a
 * `db` over another driver than `pg` with {@link InvalidOptionError}.
 */
export function inTransaction<T>(
  db: Knex,
  work: (trx: Knex.Transaction) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  return handOut('inTransaction', (call) => run(db, work, { options, call }))
}

async function run<T>(
  db: Knex,
  work: (trx: Knex.Transaction) => Promise<T>,
  { options, call }: { readonly options: TransactionOptions; readonly call: GuardedCall },
): Promise<T> {
  requireKnown(options, { isolation: true, retries: true })
  const { retries = 0, isolation } = options
  if (isolation !== undefined && !ISOLATIONS.has(isolation)) {
    throw new InvalidOptionError('isolation', isolation, [...ISOLATIONS].join(' or '))
  }
  if (!(Number.isSafeInteger(retries) && retries >= 0)) {
    throw new InvalidOptionError('retries', retries, 'a whole number, at least 0')
  }
  usePostgres(db)
  requireFunction('work', work, 'a function of the transaction')
  if (db.isTransaction) {
    const rule = 'left out in a transaction: a savepoint has the isolation of that'
    if (isolation !== undefined) throw new InvalidOptionError('isolation', isolation, rule)
    const trx = db as Knex.Transaction
    return await guardOf(trx).follow(call, () => runWithin(trx, work))
  }

  for (let attempt = 1; ; attempt += 1) {
    try {
      return await runOnce(db, work, options)
    } catch (error) {
      if (attempt > retries || !isConflict(error)) throw error
      await systemClock.pause(backoffMs(RETRY_BACKOFF, attempt, systemClock.random()), NEVER)
    }
  }
}

const NEVER = new AbortController().signal

/** How far a transaction has come. Each phase has what is known from then on. */
type Progress<T> =
  | { readonly phase: 'beginning' }
  | { readonly phase: 'working' }
  | { readonly phase: 'failed'; readonly error: unknown }
  | Committing<T>

interface Committing<T> {
  readonly phase: 'committing'
  readonly value: T
  readonly enlistment: Enlistment
  readonly guard: TransactionGuard
  readonly commit: Commit
}

/** A commit that wrote nothing has no id, and nothing about it can be in doubt. */
type Commit = DoubtfulCommit | 'nothing written'

interface State<T> {
  progress: Progress<T>
}

/** Runs `work` in a savepoint of `trx`, held to what a transaction is held to. */
async function runWithin<T>(trx: Knex.Transaction, work: (savepoint: Knex.Transaction) => Promise<T>): Promise<T> {
  requireLive(trx, 'inTransaction')
  let failed = false
  const value = await trx.transaction(async (savepoint) => {
    // As with BEGIN.
    if (savepoint.isCompleted()) throw new NotInTransactionError('it could not begin', null)
    const guard = guardOf(savepoint)
    guard.hold()
    try {
      const value = await work(savepoint)
      guard.close()
      return value
    } catch (error) {
      failed = true
      guard.letGo()
      throw error
    }
  })
  // Knex resolves where the callback has rejected with undefined.
  if (failed) throw new RolledBackError({ reason: 'its callback failed' })
  return value
}

async function runOnce<T>(
  db: Knex,
  work: (trx: Knex.Transaction) => Promise<T>,
  { isolation }: TransactionOptions,
): Promise<T> {
  const state: State<T> = { progress: { phase: 'beginning' } }
  const config = isolation === undefined ? {} : { isolationLevel: isolation }
  try {
    await db.transaction(async (trx) => {
      // Where it could not begin, Knex rejects with why: that is what happened.
      const watch = await keepClean(trx)
      try {
        return await prepare(trx, work, { state, watch })
      } catch (error) {
        state.progress = { phase: 'failed', error }
        guardOf(trx).letGo()
        throw error
      }
    }, config)
  } catch (error) {
    return await afterFailure(db, state.progress, error)
  }
  return await afterCommit(db, state)
}

/** All of a transaction but its BEGIN and COMMIT. */
async function prepare<T>(
  trx: Knex.Transaction,
  work: (trx: Knex.Transaction) => Promise<T>,
  { state, watch }: { readonly state: State<T>; readonly watch: ConnectionWatch },
): Promise<void> {
  const guard = guardOf(trx)
  const enlistment = adopt(trx)

  state.progress = { phase: 'working' }
  // Only the callback's end ends the transaction: a commit by hand resolves even when the connection was dead.
  guard.hold()
  const value = await work(trx)
  guard.close()
  if (watch.isIdle)
    throw new NotInTransactionError('one of its statements has ended it; leave that to inTransaction', null)
  const commit = await findable(trx, enlistment)
  state.progress = { phase: 'committing', value, enlistment, guard, commit }
}

/** By what the transaction can be found again. An append has told its id; otherwise it takes one more statement. */
async function findable(trx: Knex.Transaction, { xid: known, eventId }: Enlistment): Promise<Commit> {
  try {
    const xid = known ?? (await selectTransactionId(trx))
    return xid === null ? 'nothing written' : { xid, eventId, history: await historyOf(trx) }
  } catch (error) {
    throw sqlState(error) === '25P02' ? new RolledBackError({ cause: error }) : error
  }
}

/** Knex resolved, which says little: also for a COMMIT that was a rollback, and for a callback that rejects with undefined. */
async function afterCommit<T>(db: Knex, { progress }: State<T>): Promise<T> {
  if (progress.phase !== 'committing') throw new RolledBackError({ reason: 'its callback failed' })
  const command = commandOf(await progress.guard.answer)
  if (command === 'ROLLBACK') throw new RolledBackError()
  if (command !== 'COMMIT') return await settle(db, progress, new Error('The answer to COMMIT was not understood'))
  return announced(progress)
}

async function afterFailure<T>(db: Knex, progress: Progress<T>, error: unknown): Promise<T> {
  // Knex rejects with the failure of ROLLBACK, if that failed too: the first one is what happened.
  if (progress.phase === 'failed') throw progress.error ?? error
  if (progress.phase !== 'committing' || isDefiniteRollback(error)) throw error
  return await settle(db, progress, error)
}

async function settle<T>(db: Knex, progress: Committing<T>, cause: unknown): Promise<T> {
  if (progress.commit === 'nothing written') return announced(progress)
  switch (await settleCommit(db, progress.commit)) {
    case 'committed':
      return announced(progress)
    case 'rolled back':
      throw new RolledBackError({ reason: 'the connection was lost before it committed', cause })
    case 'unknown':
      throw new CommitUnknownError({ cause })
  }
}

function announced<T>({ enlistment, value }: Committing<T>): T {
  enlistment.announce()
  return value
}

function isConflict(error: unknown): boolean {
  const state = sqlState(error)
  return state === '40001' || state === '40P01'
}

/**
 * Whether the server itself said that it did not commit: data, constraint,
 * transaction and program errors. Of a dying server or connection (08, 53, 57,
 * 58, XX) the answer may have been written after the commit.
 */
function isDefiniteRollback(error: unknown): boolean {
  const state = sqlState(error)
  return state !== null && state !== '40003' && /^(2[0-9]|3[0-9]|4[0-9]|5[45]|P0)/.test(state)
}

function sqlState(error: unknown): string | null {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : null
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : null
}
