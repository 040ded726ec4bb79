/**
 * One attempt: a transaction in which handlers have a limited time, and of
 * which it is known, before the next attempt begins, that it has ended.
 *
 * A handler that hangs cannot be interrupted. Its connection is destroyed, and
 * its backend is ended and seen to have ended; whatever the handler does later
 * meets a transaction that is over.
 */
import type { Knex } from 'knex'
import type { BackendRef } from '../dead-letters/held-keys.ts'
import { NotInTransactionError, RolledBackError } from '../errors.ts'
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { CallWatch, Wait } from '../lifecycle/call-watch.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { errorType } from '../telemetry/attributes.ts'
import { keepClean } from '../transaction/clean-transaction.ts'
import { type ConnectionWatch, commandOf, GIVEN_UP, type PostgresConnection } from '../transaction/connection.ts'
import { guardOf, type TransactionGuard } from '../transaction/guard.ts'
import type { TopicPartition } from '../transport.ts'
import {
  type AttemptFailure,
  type AttemptPhase,
  classify,
  HandlerTimeoutError,
  NOT_SEVERED,
  StoppedError,
} from './failure.ts'
import type { StoredOffsets } from './stored-offsets.ts'

/** What bounds an attempt, and where the offsets go that it stores. */
export interface AttemptBounds {
  readonly handlerTimeoutMs: number
  readonly clock: Clock
  /** Aborts when work in hand is to be given up. */
  readonly cancelled: AbortSignal
  readonly logger: Logger
  readonly offsets: StoredOffsets
  /** Follows our own statements: all of an attempt but its handlers, which have their time limit. */
  readonly calls: CallWatch
}

/** A transaction in progress. */
export interface Attempt {
  readonly trx: Knex.Transaction
  /** Says which backend does the work, so that it can be ended from elsewhere. To be called before {@link handle}. */
  begun(backend: BackendRef): void
  /** Runs application code under the time limit. */
  handle(work: () => Promise<void>): Promise<void>
  /** Says that only our own last statements follow. */
  finish(): void
  /** Stores in this transaction that all effects below `nextOffset` are in the database. */
  store(where: TopicPartition, nextOffset: bigint): Promise<void>
}

/** What an attempt came to. */
export type Attempted<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly failure: AttemptFailure }

/**
 * Runs `work` in a transaction and commits; never rejects. Its last statement
 * must be one of ours: in a transaction that Postgres has aborted it fails,
 * whereas COMMIT would answer as if all were well. Whatever isolation the
 * database has as its default, a statement sees what it has waited for: a key's
 * row is locked before it is looked at what is held of the key.
 */
export async function attempt<T>(
  db: Knex,
  bounds: AttemptBounds,
  work: (attempt: Attempt) => Promise<T>,
): Promise<Attempted<T>> {
  const state: AttemptState = {
    phase: 'begin',
    wait: bounds.calls.begin(),
    backend: null,
    connection: null,
    watch: null,
    guard: null,
    severedFor: null,
    isCommitting: false,
    failed: null,
    stored: [],
  }
  const { cancelled } = bounds
  // Whatever it waits for, a lock that another member holds above all.
  const stop = () => sever(state, new StoppedError())
  cancelled.addEventListener('abort', stop, { once: true })
  try {
    const value = await db.transaction(
      async (trx): Promise<T> => {
        Object.assign(state, await keepClean(trx))
        state.phase = 'prepare'
        const guard = guardOf(trx)
        state.guard = guard
        try {
          if (cancelled.aborted) throw new StoppedError()
          // A handler that commits by hand would commit what the others of its batch have not done yet.
          guard.hold()
          const value = await work(attemptOn(trx, state, bounds))
          guard.close()
          state.isCommitting = true
          return value
        } catch (error) {
          // Kept here: a ROLLBACK that fails would take its place.
          state.failed = { error }
          guard.letGo()
          throw error
        }
      },
      { isolationLevel: 'read committed' },
    )
    // What a handler has left running may fail behind our last statement; Knex takes the answer for a commit.
    if (state.guard && commandOf(await state.guard.answer) === 'ROLLBACK') {
      state.failed ??= {
        error: new RolledBackError({ reason: 'a statement that its handler left running had failed' }),
      }
      state.phase = 'handle'
    }
    // Knex resolves where the callback has rejected with undefined, as a handler may.
    if (!state.failed) {
      for (const { where, nextOffset } of state.stored) bounds.offsets.committed(where, nextOffset)
      return { ok: true, value }
    }
    return { ok: false, failure: classify(state.failed.error, state.phase, NOT_SEVERED) }
  } catch (error) {
    const { severedFor, watch, backend, isCommitting, phase } = state
    const cause = severedFor instanceof StoppedError ? severedFor : state.failed ? state.failed.error : error
    const { cutFor, hasEnded, failure: ending } = watch ?? UNSEEN
    const isSevered = cutFor === GIVEN_UP || (cutFor === null && (hasEnded || ending !== null))
    const fate = { isSevered, failure: ending }
    const failure = classify(cause, phase, fate)
    const { error: classified } = failure
    const isCut = cutFor !== null || classified instanceof HandlerTimeoutError || classified instanceof StoppedError
    // Never one that commits: it may wait for a standby, and would make visible what that does not have.
    if (!backend || isCommitting || !isCut) return { ok: false, failure }
    const hasAnswered = await endBackend(db, backend, bounds)
    // The database is there: what takes a handler's statement so long is the event.
    if (cutFor === GIVEN_UP && phase === 'handle' && hasAnswered) {
      return { ok: false, failure: classify(cause, phase, { ...fate, isSevered: false }) }
    }
    return { ok: false, failure }
  } finally {
    cancelled.removeEventListener('abort', stop)
    state.wait.end()
  }
}

/** What is seen of a connection that was never had. */
const UNSEEN = { cutFor: null, hasEnded: false, failure: null }

/** Cuts the attempt's connection, which the pool then does not lend again. */
function sever(state: AttemptState, error: Error): void {
  const { connection } = state
  if (!connection) return
  state.severedFor ??= error
  connection.__knex__disposed = error
  connection.connection.stream.destroy()
}

interface AttemptState {
  phase: AttemptPhase
  readonly wait: Wait
  backend: BackendRef | null
  connection: PostgresConnection | null
  watch: ConnectionWatch | null
  guard: TransactionGuard | null
  /** Why we have cut it: Knex notes what it sees of that itself. */
  severedFor: Error | null
  /** Whether everything is done but the COMMIT, which Knex sends next. */
  isCommitting: boolean
  failed: { readonly error: unknown } | null
  readonly stored: { readonly where: TopicPartition; readonly nextOffset: bigint }[]
}

function attemptOn(trx: Knex.Transaction, state: AttemptState, bounds: AttemptBounds): Attempt {
  return {
    trx,
    begun(backend) {
      state.backend = backend
    },
    async handle(work) {
      state.phase = 'handle'
      await state.wait.except(() => withinTime(work, bounds, (error) => sever(state, error)))
      requireIntact(trx, state, bounds)
    },
    finish() {
      state.phase = 'finish'
    },
    async store(where, nextOffset) {
      await bounds.offsets.store(trx, where, nextOffset)
      state.stored.push({ where, nextOffset })
    },
  }
}

/**
 * Throws {@link NotInTransactionError} where a handler has left something
 * running: with a savepoint that is open the next event's effect would be
 * undone; where it has ended the transaction by a statement of its own; and
 * where it goes on although one of its statements was given up.
 */
function requireIntact(trx: Knex.Transaction, { watch }: AttemptState, { logger }: AttemptBounds): void {
  guardOf(trx).requireSettled()
  if (watch?.cutFor === GIVEN_UP) throw new NotInTransactionError(GIVEN_UP, null)
  if (!watch?.isIdle) return
  logger.error(
    {},
    'A handler has ended its transaction by SQL: after a commit, events beside its own may count as processed',
  )
  throw new NotInTransactionError('a statement of its handler has ended it', null)
}

async function withinTime(
  work: () => Promise<void>,
  bounds: AttemptBounds,
  sever: (error: Error) => void,
): Promise<void> {
  const { clock, handlerTimeoutMs, cancelled } = bounds
  const over = new AbortController()
  const end = () => over.abort()
  cancelled.addEventListener('abort', end, { once: true })
  if (cancelled.aborted) end()
  let returned = false
  const running = work()
  // After the time is up nobody listens any more.
  running.catch(() => {})
  try {
    await Promise.race([
      running,
      clock.pause(handlerTimeoutMs, over.signal).then(() => {
        if (returned) return
        const error = cancelled.aborted ? new StoppedError() : new HandlerTimeoutError(handlerTimeoutMs)
        sever(error)
        throw error
      }),
    ])
  } finally {
    returned = true
    cancelled.removeEventListener('abort', end)
    over.abort()
  }
}

// Postgres is local or near: first soon, then rarely.
const LOOK: Backoff = { firstMs: 20, maxMs: 1_000 }
/** Milliseconds within which a database answers that is there. */
const AT_ONCE_MS = 1_000

/**
 * Ends a backend by force and resolves once its transaction has ended, or when
 * the consumer gives up. While the database cannot be reached it asks again:
 * until it is known, the event must not be tried once more. Resolves to whether
 * the database has answered at once.
 */
async function endBackend(db: Knex, backend: BackendRef, bounds: AttemptBounds): Promise<boolean> {
  const { clock, cancelled, logger } = bounds
  const begun = clock.now()
  let hasAnswered: boolean | null = null
  for (let look = 1; ; look++) {
    const looked = terminate(db, backend).catch((error: unknown) => {
      logger.warn({ pid: backend.pid, reason: errorType(error), look }, 'Could not end the backend of a handler')
      return null
    })
    const hasEnded = await orAborted(looked, cancelled)
    hasAnswered ??= hasEnded !== null && clock.now() - begun < AT_ONCE_MS
    if (hasEnded || cancelled.aborted) return hasAnswered
    await clock.pause(backoffMs(LOOK, look, clock.random()), cancelled)
  }
}

/** Resolves as `work` does, or to `null` as soon as `signal` aborts. */
async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | null> {
  if (signal.aborted) return null
  const { promise, resolve } = Promise.withResolvers<null>()
  const abort = () => resolve(null)
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/**
 * The process id alone may have been given to another backend meanwhile; with
 * the transaction's id it names one transaction of all time. That its
 * transaction is no longer in progress is what counts.
 */
async function terminate(db: Knex, { pid, xid }: BackendRef): Promise<boolean> {
  await db.raw(
    `select pg_terminate_backend(pid)
       from pg_stat_activity
      where pid = :pid
        and backend_xid = (:transaction::xid8)::xid`,
    { pid, transaction: xid },
  )
  try {
    const { rows } = await db.raw<{ rows: { status: string | null }[] }>(
      `select pg_xact_status(:transaction::xid8) as status`,
      { transaction: xid },
    )
    return rows[0]?.status !== 'in progress'
  } catch (error) {
    // A server that has not come to this number yet is another one, after a failover: there it does not run.
    if (error instanceof Error && 'code' in error && error.code === '22023') return true
    throw error
  }
}
