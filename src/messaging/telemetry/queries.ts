/** The SQL of the gauges: one statement, bounded whatever the tables have grown to. */
import type { Knex } from 'knex'

/** What one reading finds. Counts stop at 100,001. */
export interface OutboxState {
  readonly pendingCount: number
  readonly oldestPendingSeconds: number
  readonly heldKeyCount: number
  readonly parkedKeyCount: number
  readonly deadLetterCount: number
  readonly processedEstimate: number
  readonly oldestTransactionSeconds: number
}

const COUNTED_AT_MOST = 100_001

/**
 * The outbox's state as of one snapshot.
 *
 * Pending rows are counted through outbox_pending, at most a hundred thousand
 * of them; the oldest is found at the head of that index, one probe a lane,
 * since within a lane the rows stand in the order of their appending.
 * processed_events is not counted but estimated, as the planner does. Times are
 * the database's own, so clocks do not matter.
 */
export async function selectOutboxState(db: Knex): Promise<OutboxState> {
  const { rows } = await db.raw<{ rows: [Record<keyof OutboxState, string>] }>(
    `select (select count(*)
               from (select 1
                       from outbox
                      where published_at is null
                        and not held
                      limit :most) as pending) as "pendingCount",
            (select coalesce(extract(epoch from clock_timestamp() - min(oldest.created_at)), 0)
               from generate_series(0, 63) as l (lane)
              cross join lateral (
                    select created_at
                      from outbox
                     where outbox.lane = l.lane
                       and published_at is null
                       and not held
                     order by seq
                     limit 1) as oldest) as "oldestPendingSeconds",
            (select count(*) from held_keys where state = 'backoff') as "heldKeyCount",
            (select count(*) from held_keys where state = 'parked') as "parkedKeyCount",
            (select count(*)
               from (select 1
                       from dead_letters
                      where state in ('dead', 'waiting')
                      limit :most) as open) as "deadLetterCount",
            (select greatest(reltuples, 0)
               from pg_class
              where oid = 'processed_events'::regclass) as "processedEstimate",
            (select coalesce(extract(epoch from clock_timestamp() - min(xact_start)), 0)
               from pg_stat_activity
              where datname = current_database()
                and backend_type = 'client backend'
                and pid <> pg_backend_pid()) as "oldestTransactionSeconds"`,
    { most: COUNTED_AT_MOST },
  )
  const [row] = rows
  // Never negative: rows may carry the time of a clock that was set back since.
  const number = (name: keyof OutboxState) => Math.max(0, Number(row[name]))
  return {
    pendingCount: number('pendingCount'),
    oldestPendingSeconds: number('oldestPendingSeconds'),
    heldKeyCount: number('heldKeyCount'),
    parkedKeyCount: number('parkedKeyCount'),
    deadLetterCount: number('deadLetterCount'),
    processedEstimate: number('processedEstimate'),
    oldestTransactionSeconds: number('oldestTransactionSeconds'),
  }
}
