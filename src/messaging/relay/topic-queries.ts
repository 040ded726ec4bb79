/** The SQL on `topics`: partition counts that all relays use alike, or a key would move to and fro. */
import type { Knex } from 'knex'
import type { TopicRecord } from '../source.ts'
import { boundLocks } from './lease-queries.ts'

interface TopicRow {
  readonly partition_count: number
  readonly earlier_counts: readonly number[]
  readonly adoption: string | null
}

/**
 * What is recorded of `topic`; `null` when nothing is. An adoption that nobody
 * extends any more is none, nor is one that would last for longer than a minute:
 * that one was extended before this clock was set back.
 */
export async function selectTopic(db: Knex, topic: string): Promise<TopicRecord | null> {
  const { rows } = await db.raw<{ rows: TopicRow[] }>(
    `select partition_count,
            earlier_counts,
            case when rests_until between clock_timestamp() and clock_timestamp() + interval '1 minute' then adoption::text end as adoption
       from topics
      where topic = :topic`,
    { topic },
  )
  const [row] = rows
  if (row === undefined) return null
  return { partitionCount: row.partition_count, earlierCounts: row.earlier_counts, adoption: row.adoption }
}

/**
 * Records `partitionCount` unless another relay was first; resolves to what
 * stands. The insert waits for a concurrent one, so both see the same.
 */
export async function recordTopic(db: Knex, topic: string, partitionCount: number): Promise<TopicRecord> {
  await db('topics').insert({ topic, partition_count: partitionCount }).onConflict('topic').ignore()
  return (await selectTopic(db, topic)) ?? { partitionCount, earlierCounts: [], adoption: null }
}

/**
 * Lets `topic` rest for all relays, for `restMs`, under the name `adoption`.
 * Resolves to false when it rests for another adoption already, or is not recorded.
 */
export async function beginAdoption(db: Knex, topic: string, adoption: string, restMs: number): Promise<boolean> {
  const { rowCount } = await db.raw<{ rowCount: number }>(
    `update topics
        set adoption = :adoption,
            rests_until = clock_timestamp() + :restMs * interval '1 millisecond'
      where topic = :topic
        and coalesce(rests_until not between clock_timestamp() and clock_timestamp() + interval '1 minute', true)`,
    { topic, adoption, restMs },
  )
  return rowCount === 1
}

/** Extends the rest. Resolves to false once it has ended: relays may send again, and it cannot be taken up. */
export async function extendAdoption(db: Knex, topic: string, adoption: string, restMs: number): Promise<boolean> {
  const { rowCount } = await db.raw<{ rowCount: number }>(
    `update topics
        set rests_until = clock_timestamp() + :restMs * interval '1 millisecond'
      where topic = :topic
        and adoption = :adoption
        and rests_until > clock_timestamp()`,
    { topic, adoption, restMs },
  )
  return rowCount === 1
}

/** Ends the rest: relays go on with the count that is recorded. */
export async function endAdoption(db: Knex, topic: string, adoption: string): Promise<void> {
  await db.raw(
    `update topics
        set rests_until = null
      where topic = :topic
        and adoption = :adoption`,
    { topic, adoption },
  )
}

/** How many live workers have not said yet that they are at rest. */
export async function countRestless(db: Knex, adoption: string): Promise<number> {
  const { rows } = await db.raw<{ rows: { count: number }[] }>(
    `select count(*)::integer as count
       from relay_workers
      where expires_at > clock_timestamp()
        and not (cast(:adoption as uuid) = any(resting))`,
    { adoption },
  )
  return rows[0]?.count ?? 0
}

/**
 * Puts the new count in force, if the topic still rests for `adoption` and every
 * live worker is at rest; resolves to whether it did. To be called in a
 * transaction of its own, which it makes wait for renewals and they for it.
 *
 * Renewals are kept out until it commits, so no worker comes to life between
 * the look at them and the change. A worker whose lease has ended may have been
 * frozen in the middle of a send: it loses its lanes, or it would go on with
 * them as if nothing had changed. What it sent is a copy then.
 */
export async function switchCount(
  trx: Knex.Transaction,
  { topic, adoption, partitionCount }: { topic: string; adoption: string; partitionCount: number },
): Promise<boolean> {
  await boundLocks(trx)
  await trx.raw('lock table relay_workers in exclusive mode')
  if ((await countRestless(trx, adoption)) > 0) return false
  await trx.raw(
    `with vanished as (
       select lane
         from lane_leases
        where owner is not null
          and not exists (
              select 1
                from relay_workers
               where relay_workers.owner = lane_leases.owner
                 and relay_workers.expires_at > clock_timestamp())
        order by lane
          for update)
     update lane_leases
        set owner = null,
            crashes = crashes + 1,
            doubt = (select last_value from outbox_seq_seq)
       from vanished
      where lane_leases.lane = vanished.lane`,
  )
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `update topics
        set earlier_counts = array_append(array_remove(earlier_counts, partition_count), partition_count),
            partition_count = :partitionCount,
            recorded_at = clock_timestamp(),
            rests_until = null
      where topic = :topic
        and adoption = :adoption
        and rests_until > clock_timestamp()`,
    { topic, adoption, partitionCount },
  )
  return rowCount === 1
}
