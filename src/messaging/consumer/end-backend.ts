/** Ends the Postgres backend of an attempt that was given up, and sees it ended. */
import type { Knex } from 'knex'
import type { BackendRef } from '../dead-letters/held-keys.ts'
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import { unlessAborted, within } from '../lifecycle/call-watch.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { errorType } from '../telemetry/attributes.ts'

export interface EndBackendOptions {
  readonly clock: Clock
  /** Aborts when the consumer gives up. */
  readonly cancelled: AbortSignal
  readonly logger: Logger
}

// Postgres is local or near: first soon, then rarely.
const LOOK: Backoff = { firstMs: 20, maxMs: 1_000 }
/** Milliseconds within which a database answers that is there. */
const AT_ONCE_MS = 1_000

/**
 * Ends a backend by force and resolves once its transaction has ended, or a
 * moment after the consumer gives up. While the database cannot be reached it
 * asks again: until it is known, the event must not be tried once more. Resolves
 * to whether the database has answered at once.
 */
export async function endBackend(
  db: Knex,
  backend: BackendRef,
  { clock, cancelled, logger }: EndBackendOptions,
): Promise<boolean> {
  const begun = clock.now()
  let hasAnswered: boolean | null = null
  for (let look = 1; ; look++) {
    let hasEnded: boolean | null = null
    const looked = terminate(db, backend).then(
      (ended) => {
        hasEnded = ended
      },
      (error: unknown) => {
        logger.warn({ pid: backend.pid, reason: errorType(error), look }, 'Could not end the backend of a handler')
      },
    )
    await unlessAborted(looked, cancelled).catch(() => within(looked, AT_ONCE_MS, clock))
    hasAnswered ??= hasEnded !== null && clock.now() - begun < AT_ONCE_MS
    if (hasEnded || cancelled.aborted) return hasAnswered
    await clock.pause(backoffMs(LOOK, look, clock.random()), cancelled)
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
