/**
 * What became of a commit whose answer was lost.
 *
 * The server knows, by the transaction's id; so it is asked, on a connection of
 * our own. The answer counts only if it comes from the same history: the same
 * cluster, on the same timeline, with no crash in between. After a failover the
 * number may belong to somebody else's transaction, and so it may after a crash:
 * a transaction of which nothing had reached the disk is forgotten with its
 * number, which the next one gets. Then an event that it had appended is looked
 * for.
 */
import type { Knex } from 'knex'
import { systemClock } from '../lifecycle/clock.ts'
import { closeConnection, connectionOf, openConnection, type PostgresConnection } from '../transaction/connection.ts'

/** Milliseconds for which an outcome is looked for. */
export const SETTLE_TIMEOUT_MS = 3_000
const ASK_AGAIN_MS = 50

/** What Postgres says of a transaction's number that it has not given out. */
const INVALID_PARAMETER = '22023'

export type CommitOutcome = 'committed' | 'rolled back' | 'unknown'

/** In which history a connection writes. */
interface History {
  /** Cluster and timeline; `null` on a standby, where nothing can be written. */
  readonly line: string | null
  /** Another one after each recovery from a crash. */
  readonly crash: string
}

const histories = new WeakMap<PostgresConnection, History>()

/**
 * The history that `trx` writes to. Asked once per connection: one that can
 * write stays on its server's timeline.
 */
export async function historyOf(trx: Knex.Transaction): Promise<History> {
  const connection = await connectionOf(trx)
  const known = histories.get(connection)
  if (known !== undefined) return known
  const { rows } = await trx.raw<{ rows: Record<string, unknown>[] }>(SELECT_HISTORY)
  const history = toHistory(rows[0])
  histories.set(connection, history)
  return history
}

/** The transaction whose commit is in doubt. */
export interface DoubtfulCommit {
  readonly xid: string
  /** An event that it has appended; `null` when it has appended none. */
  readonly eventId: string | null
  readonly history: History
}

/** Finds out what became of a commit, within {@link SETTLE_TIMEOUT_MS}. Never rejects. */
export async function settleCommit(db: Knex, commit: DoubtfulCommit): Promise<CommitOutcome> {
  const giveUp = AbortSignal.timeout(SETTLE_TIMEOUT_MS)
  const gaveUp = new Promise<'unknown'>((resolve) => {
    giveUp.addEventListener('abort', () => resolve('unknown'), { once: true })
  })
  return await Promise.race([askUntilKnown(db, commit, giveUp), gaveUp])
}

async function askUntilKnown(db: Knex, commit: DoubtfulCommit, giveUp: AbortSignal): Promise<CommitOutcome> {
  while (!giveUp.aborted) {
    const outcome = await ask(db, commit).catch(() => 'unreachable' as const)
    if (outcome !== 'in progress' && outcome !== 'unreachable') return outcome
    // In progress is a backend that has not met the end of its connection yet.
    await systemClock.pause(ASK_AGAIN_MS, giveUp)
  }
  return 'unknown'
}

async function ask(db: Knex, { xid, eventId, history }: DoubtfulCommit): Promise<CommitOutcome | 'in progress'> {
  const connection = await openConnection(db)
  try {
    const here = toHistory((await connection.query(SELECT_HISTORY)).rows[0])
    // A standby that is being promoted, or the old primary come back as one, cannot tell.
    if (history.line === null || here.line !== history.line) return 'unknown'
    const status = await statusOf(connection, xid)
    if (here.crash !== history.crash) return await afterCrash(connection, { status, eventId })
    switch (status) {
      case 'committed':
        return 'committed'
      case 'aborted':
        return 'rolled back'
      case 'in progress':
        return 'in progress'
      default:
        return 'unknown'
    }
  } finally {
    await closeConnection(db, connection)
  }
}

/** What the server says of a transaction's number: a status of Postgres's, `future` when nobody has had it, `null` when it was too long ago. */
async function statusOf(connection: PostgresConnection, xid: string): Promise<unknown> {
  try {
    const { rows } = await connection.query('select pg_xact_status($1::xid8) as status', [xid])
    return rows[0]?.status ?? null
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === INVALID_PARAMETER) return 'future'
    throw error
  }
}

/**
 * A transaction that had committed has kept its number. So it has not where
 * that stands for a rollback, or for nobody; where it stands for a commit, that
 * may be another's. One that is under way says nothing yet: statistics are reset
 * by hand as well, and then it may be ours.
 */
async function afterCrash(
  connection: PostgresConnection,
  { status, eventId }: { status: unknown; eventId: string | null },
): Promise<CommitOutcome | 'in progress'> {
  if (status === 'in progress') return status
  if (status === 'aborted' || status === 'future') return 'rolled back'
  return status === 'committed' && (await isStored(connection, eventId)) ? 'committed' : 'unknown'
}

/** Absent, it may have been deleted by the transaction itself, which says nothing. */
async function isStored(connection: PostgresConnection, eventId: string | null): Promise<boolean> {
  if (eventId === null) return false
  const { rows } = await connection.query('select 1 from outbox where id = $1', [eventId])
  return rows.length === 1
}

function toHistory(row: Readonly<Record<string, unknown>> | undefined): History {
  const { line, crash } = row ?? {}
  return { line: typeof line === 'string' ? line : null, crash: String(crash) }
}

/** Recovery from a crash resets all statistics, and nobody's rights are needed to see when. */
const SELECT_HISTORY = `
  select case
           when pg_is_in_recovery() then null
           else (select system_identifier from pg_control_system())::text
                || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
         end as line,
         date_part('epoch', pg_stat_get_bgwriter_stat_reset_time())::text as crash`
