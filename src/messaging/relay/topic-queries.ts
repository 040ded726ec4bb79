/** The SQL on `topics`: partition counts that all relays use alike, or a key would move to and fro. */
import type { Knex } from 'knex'
import type { TopicRecord } from '../source.ts'

interface TopicRow {
  readonly partition_count: number
  readonly earlier_counts: readonly number[]
  readonly adoption: string | null
}

/**
 * SQL that holds of a row of `topics` while the topic rests. A rest that nobody
 * extends any more is over, and so is one that would last for longer than a
 * minute: that one was extended before this clock was set back.
 */
export const RESTS = "rests_until between clock_timestamp() and clock_timestamp() + interval '1 minute'"

/** One attempt to put another partition count of a topic in force. */
export interface Adoption {
  readonly topic: string
  /** Its id, by which workers answer. A uuid. */
  readonly adoption: string
}

/** What is recorded of `topic`; `null` when nothing is. */
export async function selectTopic(db: Knex, topic: string): Promise<TopicRecord | null> {
  const { rows } = await db.raw<{ rows: TopicRow[] }>(
    `select partition_count,
            earlier_counts,
            case when ${RESTS} then adoption::text end as adoption
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
 * Lets the topic rest for all relays, for `restMs` milliseconds. Resolves to
 * false when it rests for another adoption already, or is not recorded.
 */
export async function beginAdoption(db: Knex, { topic, adoption }: Adoption, restMs: number): Promise<boolean> {
  const { rowCount } = await db.raw<{ rowCount: number }>(
    `update topics
        set adoption = :adoption,
            rests_until = clock_timestamp() + :restMs * interval '1 millisecond'
      where topic = :topic
        and (${RESTS}) is not true`,
    { topic, adoption, restMs },
  )
  return rowCount === 1
}

/** Extends the rest. Resolves to false once it has ended: relays may send again, and it cannot be taken up. */
export async function extendAdoption(db: Knex, { topic, adoption }: Adoption, restMs: number): Promise<boolean> {
  const { rowCount } = await db.raw<{ rowCount: number }>(
    `update topics
        set rests_until = clock_timestamp() + :restMs * interval '1 millisecond'
      where topic = :topic
        and adoption = :adoption
        and ${RESTS}`,
    { topic, adoption, restMs },
  )
  return rowCount === 1
}

/** Ends the rest: relays go on with the count that is recorded. */
export async function endAdoption(db: Knex, { topic, adoption }: Adoption): Promise<void> {
  await db.raw(
    `update topics
        set rests_until = null
      where topic = :topic
        and adoption = :adoption`,
    { topic, adoption },
  )
}

/** Puts a higher count in force and ends the rest. Resolves to false, and changes nothing, once the rest has ended. */
export async function switchCount(db: Knex, { topic, adoption }: Adoption, partitionCount: number): Promise<boolean> {
  const { rowCount } = await db.raw<{ rowCount: number }>(
    `update topics
        set earlier_counts = array_append(array_remove(earlier_counts, partition_count), partition_count),
            partition_count = :partitionCount,
            recorded_at = clock_timestamp(),
            rests_until = null
      where topic = :topic
        and adoption = :adoption
        and partition_count < :partitionCount
        and ${RESTS}`,
    { topic, adoption, partitionCount },
  )
  return rowCount === 1
}
