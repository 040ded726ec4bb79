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
import type { CallWatch, Wait } from '../lifecycle/call-watch.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { keepClean } from '../transaction/clean-transaction.ts'
import { type ConnectionWatch, commandOf, GIVEN_UP, UNCLEAN } from '../transaction/connection.ts'
import { guardOf, type TransactionGuard } from '../transaction/guard.ts'
import type { TopicPartition } from '../transport.ts'
import { endBackend } from './end-backend.ts'
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
        state.watch = await keepClean(trx)
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
    const isSevered = cutFor !== UNCLEAN && (cutFor !== null || hasEnded || ending !== null)
    const fate = { isSevered, failure: ending }
    const failure = classify(cause, phase, fate)
    // Never one that commits: it may wait for a standby, and would make visible what that does not have.
    if (!backend || isCommitting || (cutFor === null && severedFor === null)) return { ok: false, failure }
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

/** Cuts the attempt's connection. */
function sever(state: AttemptState, error: Error): void {
  if (!state.watch) return
  state.severedFor ??= error
  state.watch.cut(error.message)
}

interface AttemptState {
  phase: AttemptPhase
  readonly wait: Wait
  backend: BackendRef | null
  watch: ConnectionWatch | null
  guard: TransactionGuard | null
  /** Why it was called off. */
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
