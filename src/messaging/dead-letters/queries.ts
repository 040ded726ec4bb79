/** The SQL on `dead_letters`. One function, one statement; rows do not leave this file. */
import type { Knex } from 'knex'
import { parseJson } from '../json.ts'
import type { IncomingRecord, TopicPartition } from '../transport.ts'
import type { HeldKeyRef } from './held-keys.ts'

/**
 * What became of an event that was set aside: `dead` after its last attempt,
 * `waiting` behind a dead one of its key, then `redriven` or `skipped`.
 */
export type DeadLetterState = 'dead' | 'waiting' | 'redriven' | 'skipped'

/** A record to be stored whole. */
export interface SetAsideRecord extends HeldKeyRef {
  /** `null` for a record that is not one of ours, or whose key cannot be held: its place tells it from others. */
  readonly eventId: string | null
  readonly eventType: string | null
  readonly where: TopicPartition
  readonly record: IncomingRecord
}

/** A dead letter's record, to be processed again. */
export interface StoredRecord {
  readonly seq: bigint
  readonly eventId: string
  readonly eventType: string
  readonly where: TopicPartition
  readonly record: IncomingRecord
}

interface RecordRow {
  seq: string
  event_id: string
  event_type: string
  topic: string
  partition: number
  record_offset: string
  record_key: Buffer | null
  record_value: Buffer | null
  record_headers: string
  recorded_at: Date
}

/**
 * Sets records aside as `state`, in the order given; resolves to how many were new.
 *
 * One that is set aside already stays as it is, unless it was settled: then it
 * has come again beyond the inbox's memory and waits anew, at the end. Served
 * by dead_letters_event and dead_letters_record; the caller holds the key's row
 * in held_keys, so nothing is redriven meanwhile.
 */
export async function insertDeadLetters(
  trx: Knex.Transaction,
  letters: readonly SetAsideRecord[],
  { state, reason, attempts }: { state: 'dead' | 'waiting'; reason: string | null; attempts: number },
): Promise<number> {
  const [first] = letters
  if (!first) return 0
  const conflict = first.eventId === null ? FOREIGN : OURS
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `insert into dead_letters (holder, state, event_id, event_type, topic, aggregate_type, aggregate_id,
            partition, record_offset, record_key, record_value, record_headers, recorded_at, reason, attempts)
     select letter.holder, :state, letter.event_id, letter.event_type, letter.topic, letter.aggregate_type, letter.aggregate_id,
            letter.partition, letter.record_offset, letter.record_key, letter.record_value, letter.record_headers, letter.recorded_at,
            :reason, :attempts
       from unnest(:holders::text[], :eventIds::uuid[], :eventTypes::text[], :topics::text[], :types::text[], :ids::text[],
                   :partitions::int[], :offsets::bigint[], :keys::bytea[], :values::bytea[], :headers::json[], :times::timestamptz[])
            with ordinality as letter (holder, event_id, event_type, topic, aggregate_type, aggregate_id,
                   partition, record_offset, record_key, record_value, record_headers, recorded_at, place)
      order by letter.place
         ${conflict}
         do update set state = excluded.state,
                       seq = default,
                       reason = excluded.reason,
                       attempts = excluded.attempts,
                       settled_at = null
                 where dead_letters.state in ('redriven', 'skipped')`,
    {
      state,
      reason,
      attempts,
      holders: letters.map((letter) => letter.holder),
      eventIds: letters.map((letter) => letter.eventId),
      eventTypes: letters.map((letter) => letter.eventType),
      topics: letters.map((letter) => letter.topic),
      types: letters.map((letter) => letter.aggregateType),
      ids: letters.map((letter) => letter.aggregateId),
      partitions: letters.map((letter) => letter.where.partition),
      offsets: letters.map((letter) => letter.record.offset.toString()),
      keys: letters.map((letter) => letter.record.key),
      values: letters.map((letter) => letter.record.value),
      headers: letters.map((letter) => JSON.stringify(letter.record.headers)),
      // Text in UTC: the driver would write a Date in the process's time zone.
      times: letters.map((letter) => letter.record.timestamp.toISOString()),
    },
  )
  return rowCount
}

// Two partial unique indexes, so two statements: constants of this file, never anything from outside.
const OURS = 'on conflict (holder, event_id) where event_id is not null'
const FOREIGN = 'on conflict (holder, topic, partition, record_offset) where event_id is null'

/**
 * The first open dead letter of a key, to be redriven; `null` when none is left.
 * The caller holds the key's row in held_keys, so none is added behind its back.
 * Served by dead_letters_open. Ordered by the column in full: its bare name is
 * the text that is read, where 10 comes before 9.
 */
export async function selectNext(trx: Knex.Transaction, key: HeldKeyRef): Promise<StoredRecord | null> {
  const { rows } = await trx.raw<{ rows: RecordRow[] }>(
    `select seq::text, event_id, event_type, topic, partition, record_offset::text, record_key, record_value,
            record_headers::text, recorded_at
       from dead_letters
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and state in ('dead', 'waiting')
        and event_id is not null
      order by dead_letters.seq
      limit 1`,
    { holder: key.holder, topic: key.topic, aggregateType: key.aggregateType, aggregateId: key.aggregateId },
  )
  const [row] = rows
  return row ? toStoredRecord(row) : null
}

/** Settles one open dead letter; false if it was settled before. */
export async function settle(db: Knex, seq: bigint, state: 'redriven' | 'skipped'): Promise<boolean> {
  const { rowCount } = await db.raw<{ rowCount: number }>(
    `update dead_letters
        set state = :state,
            settled_at = clock_timestamp()
      where seq = :seq::bigint
        and state in ('dead', 'waiting')`,
    { seq: seq.toString(), state },
  )
  return rowCount === 1
}

/** Notes that a redrive of this event has failed: it is what its key waits for now. */
export async function markDead(trx: Knex.Transaction, seq: bigint, reason: string): Promise<void> {
  await trx.raw(
    `update dead_letters
        set state = 'dead',
            reason = :reason,
            attempts = attempts + 1
      where seq = :seq::bigint
        and state in ('dead', 'waiting')`,
    { seq: seq.toString(), reason },
  )
}

function toStoredRecord(row: RecordRow): StoredRecord {
  return {
    seq: BigInt(row.seq),
    eventId: row.event_id,
    eventType: row.event_type,
    where: { topic: row.topic, partition: row.partition },
    record: {
      offset: BigInt(row.record_offset),
      timestamp: row.recorded_at,
      key: row.record_key,
      value: row.record_value,
      headers: parseJson(row.record_headers) as Record<string, string>,
    },
  }
}
