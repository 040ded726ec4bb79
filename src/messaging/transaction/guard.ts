/**
 * What holds a transaction together while application code has it.
 *
 * All savepoints of a transaction share its one connection, and Postgres puts a
 * statement into the savepoint that is open when it arrives, whoever sent it: so
 * what has to stand with the transaction is not written beside an open savepoint
 * of it. And who ends the transaction by hand, or leaves something running in
 * it, would have half of it committed: so its end is kept to whoever began it.
 */
import type { Knex } from 'knex'
import { NotInTransactionError } from '../errors.ts'
import { connectionOf, watchConnection, wrapSavepoints } from './connection.ts'

const BY_HAND = 'its callback called commit or rollback; return or throw instead'
const STILL_RUNNING = 'it was still running when the callback of its transaction returned'

/** One call that writes: the promise that its caller was given. */
export interface GuardedCall {
  /** What is called, for messages: `appendToOutbox`. */
  readonly name: string
  promise?: Promise<unknown>
}

/** Calls `work` and knows its promise, which the caller is given. */
export function handOut<T>(name: string, work: (call: GuardedCall) => Promise<T>): Promise<T> {
  const call: GuardedCall = { name }
  const promise = work(call)
  call.promise = promise
  return promise
}

/** A savepoint: whether it has ended, and its guard once it has one. */
interface Savepoint {
  readonly isOver: () => boolean
  readonly guard?: TransactionGuard
}

/** Of one transaction or savepoint. */
export class TransactionGuard {
  #running: Promise<void> = Promise.resolve()
  readonly #calls = new Set<GuardedCall>()
  #savepoints: Savepoint[] = []
  /** Calls that were handed out and have not ended, each of which may be many statements. */
  readonly #handedOut = new Set<GuardedCall>()
  /** Why the transaction cannot be committed, whatever its callback says; `null` while it can. */
  #doomed: string | null = null
  #isHeld = false
  #isClosed = false
  #isRolledBack = false
  #answer: Promise<unknown> = Promise.resolve()

  /** Whether `rollback` was called, by whomever: Knex resolves after one without an error. */
  get isRolledBack(): boolean {
    return this.#isRolledBack
  }

  /** What Knex makes of the answer to COMMIT, which it drops. Never rejects. */
  get answer(): Promise<unknown> {
    return this.#answer
  }

  /**
   * Runs `work` after what was called before it in this transaction: one
   * connection has one statement at a time. Throws {@link NotInTransactionError}
   * once the transaction has been closed, and while a savepoint of it is open:
   * the statement would run in that, and be undone with it.
   */
  async inTurn<T>(call: GuardedCall, work: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new NotInTransactionError('its callback has returned', call.name)
    if (this.#isInSavepoint) {
      throw new NotInTransactionError(
        "a savepoint of it is open; use the savepoint's own handle, or await it first",
        call.name,
      )
    }
    const before = this.#running
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#running = promise
    this.#calls.add(call)
    try {
      await before
      return await work()
    } finally {
      this.#calls.delete(call)
      resolve()
    }
  }

  /** Follows a call that may open savepoints, until it has ended: what is left of one that nobody awaits ends no process. */
  async follow<T>(call: GuardedCall, work: () => Promise<T>): Promise<T> {
    this.#handedOut.add(call)
    try {
      return await work()
    } finally {
      this.#handedOut.delete(call)
    }
  }

  /** Opens a savepoint by `open`, after what was called before it; `isOver` tells whether it has ended. */
  savepoint(open: () => Promise<unknown>, isOver: () => boolean): Promise<unknown> {
    this.noteSavepoint({ isOver })
    // Knex's own object where nothing has to be waited for: it is more than a promise.
    return this.#calls.size === 0 ? open() : this.#running.then(open)
  }

  /** Knows of a savepoint that is open already. */
  noteSavepoint(savepoint: Savepoint): void {
    this.#savepoints.push(savepoint)
  }

  get #isInSavepoint(): boolean {
    this.#savepoints = this.#savepoints.filter(({ isOver }) => !isOver())
    return this.#savepoints.length > 0
  }

  /** From now on `commit` and `rollback` by hand are refused, and doom the transaction, until {@link letGo} or {@link close}. */
  hold(): void {
    this.#isHeld = true
  }

  /** Lets the transaction be rolled back, whatever is still running in it. */
  letGo(): void {
    this.#isHeld = false
    this.#silence()
  }

  /** Nobody looks at how the calls end that are left: that says less than why the transaction fails, and would end the process. */
  #silence(): void {
    for (const { promise } of [...this.#calls, ...this.#handedOut]) promise?.catch(() => {})
    for (const { guard } of this.#savepoints) if (guard) guard.#silence()
  }

  /**
   * Throws {@link NotInTransactionError} when a call is still running or a savepoint
   * open: nobody awaited it; and where an end by hand was refused and the refusal
   * swallowed.
   */
  requireSettled(): void {
    if (this.#doomed !== null) throw new NotInTransactionError(this.#doomed, null)
    this.#silence()
    const [running] = this.#calls
    if (running) throw new NotInTransactionError(STILL_RUNNING, running.name)
    if (this.#isInSavepoint) {
      throw new NotInTransactionError('a savepoint of it was still open when its callback returned; await it', null)
    }
    const [left] = this.#handedOut
    if (left) throw new NotInTransactionError(STILL_RUNNING, left.name)
  }

  /** Ends writing and lets the transaction be ended. Throws as {@link requireSettled} does. */
  close(): void {
    this.#isClosed = true
    this.#isHeld = false
    this.requireSettled()
  }

  /** Keeps the ends of `trx` in sight. */
  watchEnds(trx: Knex.Transaction): void {
    const { commit, rollback } = trx
    trx.commit = (value) => {
      if (this.#isHeld) return this.#refuseByHand()
      const answer = commit(value)
      this.#answer = Promise.resolve(answer).catch(() => {})
      return answer
    }
    trx.rollback = (error) => {
      if (this.#isHeld) return this.#refuseByHand()
      this.#isRolledBack = true
      return rollback(error)
    }
  }

  /** Rejects, as Knex's own would, and throws nothing: a watchdog on a timer has nobody to catch it. */
  #refuseByHand(): ReturnType<Knex.Transaction['commit']> {
    this.#doomed = BY_HAND
    const refusal: Promise<never> = Promise.reject(new NotInTransactionError(BY_HAND, null))
    refusal.catch(() => {})
    // Knex's types call the answer a query builder, and it is a promise.
    return refusal as unknown as ReturnType<Knex.Transaction['commit']>
  }
}

const guards = new WeakMap<Knex.Transaction, TransactionGuard>()

/** The guard of `trx`, set up at the first call together with those around it. It sees what happens from then on. */
export function guardOf(trx: Knex.Transaction): TransactionGuard {
  const known = guards.get(trx)
  if (known) return known
  const parent = trx.parentTransaction ? guardOf(trx.parentTransaction as Knex.Transaction) : null
  const guard = new TransactionGuard()
  guards.set(trx, guard)
  // Also in one that Knex has begun, a statement that is given up ends it.
  if (!parent) connectionOf(trx).then(watchConnection, () => {})
  guard.watchEnds(trx)
  watchSavepoints(trx, guard)
  parent?.noteSavepoint({ isOver: () => trx.isCompleted(), guard })
  return guard
}

/** Sees each savepoint of `trx` that is opened from now on, and those within it. */
function watchSavepoints(trx: Knex.Transaction, guard: TransactionGuard): void {
  wrapSavepoints(trx, (original) => (callback, ...rest) => {
    let savepoint: Knex.Transaction | null = null
    let hasEnded = false
    const begun = (inner: unknown) => {
      savepoint = inner as Knex.Transaction
      guardOf(savepoint)
    }
    const ended = () => {
      hasEnded = true
    }
    // Of one that has a handle Knex says so as soon as its end is sent.
    const isOver = () => hasEnded || savepoint?.isCompleted() === true
    const open = (...args: unknown[]) => {
      try {
        return guard.savepoint(() => original(...(args as Parameters<typeof original>)), isOver)
      } catch (error) {
        ended()
        throw error
      }
    }
    if (typeof callback !== 'function') {
      const opened = open(callback, ...rest)
      opened.then(begun, ended)
      return opened
    }
    const opened = open(
      (inner: unknown): unknown => {
        begun(inner)
        return callback(inner)
      },
      ...rest,
    )
    opened.then(ended, ended)
    return opened
  })
}
