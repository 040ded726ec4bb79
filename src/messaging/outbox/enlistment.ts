/**
 * What a transaction has appended so far.
 *
 * Each transaction and each savepoint has its own account. A savepoint's is
 * added to the one around it when it is released and forgotten when it is
 * rolled back, so that what is told after the commit is what was committed.
 */
import type { Knex } from 'knex'
import { InvalidEventError, InvalidOptionError } from '../errors.ts'
import { ATTR_DESTINATION, ATTR_OUTBOX, outboxName } from '../telemetry/attributes.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { commandOf, handleOf } from '../transaction/connection.ts'
import { guardOf } from '../transaction/guard.ts'
import { publishCommitted } from './committed.ts'
import type { SealedEvent } from './seal.ts'

/**
 * Aggregates that one transaction may lock. Each is an entry in the server's
 * lock table, which is finite and shared (6,400 by default).
 */
export const MAX_LOCKED_AGGREGATES = 1_000

/** One transaction's or savepoint's account. */
export class Enlistment {
  readonly #parent: Enlistment | null
  readonly #lanes = new Set<number>()
  readonly #counts = new Map<string, number>()
  readonly #lockedKeys = new Set<string>()
  #xid: string | null = null
  #eventId: string | null = null

  constructor(parent: Enlistment | null) {
    this.#parent = parent
  }

  /** Whether events were appended. */
  get empty(): boolean {
    return this.#counts.size === 0
  }

  /** The transaction's id; `null` before anything was appended, be it in a savepoint that was rolled back. */
  get xid(): string | null {
    return this.#xid
  }

  /** An event that the transaction leaves in the outbox when it commits; `null` while there is none. */
  get eventId(): string | null {
    return this.#eventId
  }

  /** Reserves room in the lock table. Throws {@link InvalidEventError} beyond {@link MAX_LOCKED_AGGREGATES}. */
  reserveLocks(keys: readonly string[]): void {
    for (const key of keys) this.#lockedKeys.add(key)
    let count = 0
    for (let account: Enlistment | null = this; account; account = account.#parent) count += account.#lockedKeys.size
    if (count > MAX_LOCKED_AGGREGATES) {
      throw new InvalidEventError(
        'aggregate',
        `is one too many: a transaction locks at most ${MAX_LOCKED_AGGREGATES} aggregates; split it, or lock the aggregates' rows and pass { locked: true }`,
      )
    }
  }

  /** Records what was stored, by the transaction with this id. */
  add(events: readonly SealedEvent[], destinations: readonly string[], xid: string): void {
    for (let account: Enlistment | null = this; account; account = account.#parent) account.#xid = xid
    this.#eventId ??= events[0]?.id ?? null
    for (const { lane } of events) this.#lanes.add(lane)
    for (const destination of destinations) {
      this.#counts.set(destination, (this.#counts.get(destination) ?? 0) + 1)
    }
  }

  /** Adds a released savepoint's account to this one. */
  merge(child: Enlistment): void {
    this.#eventId ??= child.#eventId
    for (const lane of child.#lanes) this.#lanes.add(lane)
    for (const key of child.#lockedKeys) this.#lockedKeys.add(key)
    for (const [destination, count] of child.#counts) {
      this.#counts.set(destination, (this.#counts.get(destination) ?? 0) + count)
    }
  }

  /** Tells the process of the commit, and counts. */
  announce(): void {
    if (this.empty) return
    for (const [destination, count] of this.#counts) {
      getInstruments().enqueued.add(count, { [ATTR_OUTBOX]: outboxName(), [ATTR_DESTINATION]: destination })
    }
    publishCommitted([...this.#lanes])
  }
}

const enlistments = new WeakMap<Knex.Transaction, Enlistment>()

/**
 * The account of `trx`, opened at the first call. One of a savepoint merges by
 * itself. One of a transaction that `inTransaction` did not open is announced
 * when it has committed.
 */
export function enlist(trx: Knex.Transaction): Enlistment {
  const known = enlistments.get(trx)
  if (known) return known

  const parent = trx.parentTransaction ? enlist(trx.parentTransaction as Knex.Transaction) : null
  const enlistment = open(trx, parent)
  const guard = guardOf(trx)
  // Knex resolves after a rollback without an error as well, and where COMMIT was answered by ROLLBACK.
  const released = () => {
    if (!guard.isRolledBack) parent?.merge(enlistment)
  }
  const committed = async () => {
    if (!guard.isRolledBack && commandOf(await guard.answer) !== 'ROLLBACK') enlistment.announce()
  }
  trx.executionPromise.then(parent ? released : committed, () => {})
  return enlistment
}

/** Opens the account of a transaction whose commit the caller announces. */
export function adopt(trx: Knex.Transaction): Enlistment {
  return open(trx, null)
}

function open(trx: Knex.Transaction, parent: Enlistment | null): Enlistment {
  const enlistment = new Enlistment(parent)
  enlistments.set(trx, enlistment)
  return enlistment
}

const lockingByHandle = new WeakMap<object, Map<string, boolean>>()

/**
 * Holds all appends of an aggregate type to one kind of lock, the outbox's own
 * or the aggregate's row: a writer that takes the one does not wait for a
 * writer that takes the other. Sees the appends through one pool of one
 * process. Throws {@link InvalidOptionError} on the first that differs.
 */
export function holdToOneLock(trx: Knex.Transaction, aggregateTypes: Iterable<string>, locked: boolean): void {
  const handle = handleOf(trx)
  const kinds = lockingByHandle.get(handle) ?? new Map<string, boolean>()
  lockingByHandle.set(handle, kinds)
  for (const type of aggregateTypes) {
    const before = kinds.get(type) ?? locked
    if (before !== locked) {
      throw new InvalidOptionError('locked', locked, `${before} as in earlier appends of aggregate type ${type}`)
    }
    kinds.set(type, locked)
  }
}
