/** The SQL on `processed_events` and `consumer_offsets`. One function, one statement; rows do not leave this file. */
import type { Knex } from 'knex'
import type { TopicPartition } from '../transport.ts'

/**
 * Marks `eventIds` as processed by `consumer`; resolves to those that it had not processed before.
 *
 * Waits for another transaction that is marking one of them, and counts it as
 * new only if that one rolls back: of two simultaneous deliveries, one is
 * handled. Inserted in the order of the ids, so that two batches with the same
 * events in another order wait for each other and do not deadlock. Served by
 * the primary key.
 */
export async function markProcessed(
  trx: Knex.Transaction,
  consumer: string,
  eventIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await trx.raw<{ rows: { event_id: string }[] }>(
    `insert into processed_events (consumer, event_id)
     select :consumer, incoming.id
       from unnest(:eventIds::uuid[]) as incoming (id)
      order by incoming.id
         on conflict (consumer, event_id) do nothing
     returning event_id`,
    { consumer, eventIds },
  )
  return new Set(rows.map((row) => row.event_id))
}

/**
 * Marks one event as left out for good; false if it had been processed or left out before.
 *
 * The same row as {@link markProcessed} makes, so a delivery that runs at the
 * same time waits for it, and either the effect or the skip stands, never both.
 */
export async function markSkipped(trx: Knex.Transaction, consumer: string, eventId: string): Promise<boolean> {
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `insert into processed_events (consumer, event_id, outcome)
     values (:consumer, :eventId, 'skipped')
         on conflict (consumer, event_id) do nothing`,
    { consumer, eventId },
  )
  return rowCount === 1
}

/**
 * Which of `eventIds` have been processed by `consumer`.
 *
 * A mere look: another transaction may be marking the rest at this moment, so
 * it saves work and decides nothing. Served by the primary key.
 */
export async function selectProcessed(
  db: Knex,
  consumer: string,
  eventIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await db.raw<{ rows: { event_id: string }[] }>(
    `select event_id
       from processed_events
      where consumer = :consumer
        and event_id = any(:eventIds::uuid[])`,
    { consumer, eventIds },
  )
  return new Set(rows.map((row) => row.event_id))
}

/** The offset from which `consumer` has effects still to come; `null` when nothing is stored. */
export async function selectOffset(db: Knex, consumer: string, where: TopicPartition): Promise<bigint | null> {
  const { rows } = await db.raw<{ rows: { next_offset: string }[] }>(
    `select next_offset::text
       from consumer_offsets
      where consumer = :consumer
        and topic = :topic
        and partition = :partition`,
    { consumer, topic: where.topic, partition: where.partition },
  )
  const [row] = rows
  return row ? BigInt(row.next_offset) : null
}

/** Every offset that `consumer` has stored. Served by the primary key. */
export async function selectOffsets(
  db: Knex,
  consumer: string,
): Promise<readonly (TopicPartition & { readonly nextOffset: bigint })[]> {
  const { rows } = await db.raw<{ rows: { topic: string; partition: number; next_offset: string }[] }>(
    `select topic,
            partition,
            next_offset::text
       from consumer_offsets
      where consumer = :consumer`,
    { consumer },
  )
  return rows.map(({ topic, partition, next_offset }) => ({ topic, partition, nextOffset: BigInt(next_offset) }))
}

/** An offset to be stored. */
export interface OffsetStep {
  /** What the consumer knows to be stored; `null` when it knows of nothing. */
  readonly known: bigint | null
  readonly nextOffset: bigint
  /** Whether the partition ends before what is known: the topic was made anew, and counts from 0 again. */
  readonly isAnew: boolean
}

/**
 * Stores that all effects below `nextOffset` are in the database, or in this
 * transaction. Changes nothing and resolves to false when less is stored than
 * is known: then effects have been lost in between.
 *
 * Locks the row first, so what is compared is what is changed. A lower value
 * takes the place of a higher one only where the topic was made anew, and what
 * another member has stored meanwhile stays even then: what is stored says
 * which effects are in the database, and a redelivery takes none out. Served by
 * the primary key.
 */
export async function storeOffset(
  db: Knex,
  consumer: string,
  { topic, partition }: TopicPartition,
  { known, nextOffset, isAnew }: OffsetStep,
): Promise<boolean> {
  const { rows } = await db.raw<{ rows: { is_behind: boolean }[] }>(
    `with before as (
       select next_offset
         from consumer_offsets
        where consumer = :consumer
          and topic = :topic
          and partition = :partition
          for update),
     known as (
       select coalesce((select next_offset from before), -1) as actual,
              coalesce(:known::bigint, -1) as expected),
     stored as (
       insert into consumer_offsets (consumer, topic, partition, next_offset)
       select :consumer, :topic, :partition::integer, :nextOffset::bigint
         from known
        where actual >= expected
           on conflict (consumer, topic, partition)
           do update set next_offset = case
                           when :isAnew and consumer_offsets.next_offset <= coalesce(:known::bigint, -1)
                             then excluded.next_offset
                           else greatest(consumer_offsets.next_offset, excluded.next_offset)
                         end,
                         updated_at = excluded.updated_at)
     select actual < expected as is_behind
       from known`,
    { consumer, topic, partition, known: known?.toString() ?? null, nextOffset: nextOffset.toString(), isAnew },
  )
  return rows[0]?.is_behind === false
}
