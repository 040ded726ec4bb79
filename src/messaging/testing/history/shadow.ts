/**
 * An append-only copy of what was committed: kept by trigger in a schema of its
 * own, in the events' own transactions, so that neither pruning nor deleting
 * blinds the checker, and nothing can be forgotten afterwards.
 */
import { createHash } from 'node:crypto'
import type { Knex } from 'knex'
import type { IncomingRecord, TopicPartition } from '../../transport.ts'
import type { CommittedEvent, ObservedRecord } from './evidence.ts'

/**
 * Begins to keep the shadow of the `outbox` table that `db` sees. Safe to call
 * again. Not for production: it doubles what each append writes.
 */
export async function installShadow(db: Knex): Promise<void> {
  await db.raw(
    `create schema if not exists outbox_shadow;

     create table if not exists outbox_shadow.committed (
       id                uuid     not null,
       seq               bigint   not null,
       topic             text,
       aggregate_type    text     not null,
       aggregate_id      text     not null,
       aggregate_version bigint,
       event_type        text     not null,
       key_hash          integer  not null,
       payload_hash      text,
       payload           jsonb
     );

     create or replace function outbox_shadow.remember() returns trigger language plpgsql as $$
     begin
       insert into outbox_shadow.committed
              (id, seq, topic, aggregate_type, aggregate_id, aggregate_version, event_type, key_hash, payload_hash, payload)
       select id, seq, topic, aggregate_type, aggregate_id, aggregate_version, event_type, key_hash,
              encode(sha256(convert_to(payload::text, 'UTF8')), 'hex'), payload
         from appended;
       return null;
     end $$;

     create or replace function outbox_shadow.refuse() returns trigger language plpgsql as $$
     begin
       raise exception 'the shadow is append-only';
     end $$;

     create or replace trigger remember_committed
      after insert on outbox
      referencing new table as appended
        for each statement execute function outbox_shadow.remember();

     create table if not exists outbox_shadow.origin (
       from_the_start boolean not null
     );

     insert into outbox_shadow.origin (from_the_start)
     select not is_called
       from outbox_seq_seq
      where not exists (
            select 1
              from outbox_shadow.origin);

     create or replace trigger refuse_change
     before update or delete or truncate on outbox_shadow.committed
        for each statement execute function outbox_shadow.refuse()`,
  )
}

interface ShadowRow {
  readonly id: string
  readonly seq: string
  readonly topic: string | null
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly aggregate_version: string | null
  readonly event_type: string
  readonly key_hash: number
  readonly payload_hash: string | null
  readonly payload: string | null
}

/** How shadow rows become evidence. */
export interface ShadowReading {
  readonly topicFor: (aggregateType: string) => string
  /** Finds the operation that wrote an event in its payload's text. @defaultValue none is looked for */
  readonly operationOf?: (event: { readonly type: string; readonly payload: string | null }) => string | null
}

/** All that was ever committed, in append order. */
export async function readShadow(
  db: Knex,
  { topicFor, operationOf = () => null }: ShadowReading,
): Promise<readonly CommittedEvent[]> {
  const { rows } = await db.raw<{ rows: ShadowRow[] }>(
    `select id, seq, topic, aggregate_type, aggregate_id, aggregate_version, event_type, key_hash, payload_hash,
            payload::text
       from outbox_shadow.committed
      order by seq`,
  )
  return rows.map((row) => ({
    id: row.id,
    seq: BigInt(row.seq),
    topic: row.topic ?? topicFor(row.aggregate_type),
    aggregateType: row.aggregate_type,
    aggregateId: row.aggregate_id,
    version: row.aggregate_version === null ? null : Number(row.aggregate_version),
    type: row.event_type,
    keyHash: row.key_hash,
    payloadHash: row.payload_hash,
    operation: operationOf({ type: row.event_type, payload: row.payload }),
  }))
}

/**
 * Whether the shadow is older than the first event: it was installed before
 * anything was appended. Creating its trigger waits for every append that is
 * under way, so none slips in between.
 */
export async function shadowsFromTheStart(db: Knex): Promise<boolean> {
  const { rows } = await db.raw<{ rows: { from_the_start: boolean }[] }>(
    `select from_the_start
       from outbox_shadow.origin`,
  )
  return rows[0]?.from_the_start ?? false
}

/** A record as evidence. */
export function observe(where: TopicPartition, record: IncomingRecord): ObservedRecord {
  const { event_id: id, event_type: type, aggregate_version: version } = record.headers
  return {
    topic: where.topic,
    partition: where.partition,
    offset: record.offset,
    key: record.key?.toString() ?? null,
    id: id ?? null,
    type: type ?? null,
    version: version === undefined ? null : Number(version),
    payloadHash: record.value === null ? null : createHash('sha256').update(record.value).digest('hex'),
    at: record.timestamp.getTime(),
  }
}
