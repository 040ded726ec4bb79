/** The SQL on `topics`: partition counts that all relays use alike, or a key would move to and fro. */
import type { Knex } from 'knex'

/** The recorded partition count of `topic`; `null` when there is none. */
export async function selectTopic(db: Knex, topic: string): Promise<number | null> {
  const row = await db<{ topic: string; partition_count: number }>('topics').where({ topic }).first('partition_count')
  return row?.partition_count ?? null
}

/**
 * Records `partitionCount` unless another relay was first; resolves to the count
 * that stands. The insert waits for a concurrent one, so both see the same.
 */
export async function recordTopic(db: Knex, topic: string, partitionCount: number): Promise<number> {
  await db('topics').insert({ topic, partition_count: partitionCount }).onConflict('topic').ignore()
  return (await selectTopic(db, topic)) ?? partitionCount
}
