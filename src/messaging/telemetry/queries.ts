/** The SQL of the gauges: one reading, bounded whatever the tables have grown to. */
import type { Knex } from 'knex'
import { cleanTransaction } from '../transaction/clean-transaction.ts'

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
 * The outbox's state as of one snapshot, at a cost that does not grow with the tables.
 *
 * What is counted is counted along an index, at most a hundred thousand of
 * each: pending rows along outbox_pending, held and parked keys along
 * held_keys_state, dead letters along dead_letters_open. Each order is there
 * for that alone, and {@link refuseToSort} for the rest. The oldest pending row
 * is found at the head of its index, one probe a lane, since within a lane the
 * rows stand in the order of their appending. processed_events is not counted
 * but estimated, as the planner does. Times are the database's own, so clocks
 * do not matter.
 */
export async function selectOutboxState(db: Knex): Promise<OutboxState> {
  const { rows } = await cleanTransaction(db, async (trx) => {
    await refuseToSort(trx)
    return await trx.raw<{ rows: [Record<keyof OutboxState, string>] }>(
      `select (select count(*)
                 from (select 1
                         from outbox
                        where published_at is null
                          and not held
                        order by lane, seq
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
              (select count(*)
                 from (select 1
                         from held_keys
                        where state = 'backoff'
                        order by held_at
                        limit :most) as held) as "heldKeyCount",
              (select count(*)
                 from (select 1
                         from held_keys
                        where state = 'parked'
                        order by held_at
                        limit :most) as parked) as "parkedKeyCount",
              (select count(*)
                 from (select 1
                         from dead_letters
                        where state in ('dead', 'waiting')
                        order by holder, topic, aggregate_type, aggregate_id, seq
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
  })
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

/**
 * Leaves the planner, for the rest of `trx`, no way to an order but an index's.
 *
 * It would take the whole table and sort what is left of it where a vacuum has
 * not been for long: while an old transaction holds it back, or a backlog is
 * new. All that was ever published would be read then, at each reading.
 */
async function refuseToSort(trx: Knex.Transaction): Promise<void> {
  await trx.raw("select set_config('enable_sort', 'off', true)")
}
