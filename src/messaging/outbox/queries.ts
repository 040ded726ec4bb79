/** The write side's SQL on `outbox`. One function, one statement; rows do not leave this file. */
import type { Knex } from 'knex'
import type { AggregateRef, TraceContext } from '../envelope.ts'
import type { SealedEvent } from './seal.ts'

/** What the database made of one event. */
export interface StoredEvent {
  /** JSON text as it stands in the row and goes to the topic. */
  readonly payload: string | null
  /** Bytes of payload and headers as stored. */
  readonly bytes: number
  /** The id of the transaction, by which its outcome can be found out. */
  readonly xid: string
}

/**
 * Locks `aggregates` until the transaction ends, against other appends that lock.
 *
 * A statement of its own before the insert, since `seq` must be drawn under the
 * lock: two transactions then append in the order in which they commit. Locks
 * are taken in the order of their numbers, so that two of these statements never
 * wait for each other. The transaction's id comes first: it must be older than
 * any `seq` that this transaction draws. No table is read.
 */
export async function lockAggregates(trx: Knex.Transaction, aggregates: readonly AggregateRef[]): Promise<void> {
  await trx.raw(
    `select pg_current_xact_id(),
            pg_advisory_xact_lock(sorted.key)
       from (select distinct hashtextextended(aggregate.id, hashtextextended(aggregate.type, 0)) as key
               from unnest(cast(:types as text[]), cast(:ids as text[])) as aggregate (type, id)
              order by key) as sorted`,
    { types: aggregates.map(({ type }) => type), ids: aggregates.map(({ id }) => id) },
  )
}

/** An event and the trace context that is stored with it. */
export type TracedEvent = SealedEvent & { readonly trace: TraceContext | null }

/**
 * Stores one event; resolves to how it looks as stored, or to `null`, having
 * stored nothing, when it has more than `maxBytes`.
 *
 * The same as {@link insertEvents} for the common case of a single event, in a
 * statement that the server plans faster. Concurrent appends of the aggregate
 * wait before it, as there.
 */
export async function insertEvent(
  trx: Knex.Transaction,
  event: TracedEvent,
  maxBytes: number,
): Promise<StoredEvent | null> {
  const { rows } = await trx.raw<{ rows: StoredEvent[] }>(
    `insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type,
                         payload, headers, traceparent, tracestate, occurred_at)
     select cast(:id as uuid), cast(:lane as smallint), cast(:keyHash as integer), cast(:aggregateType as text),
            cast(:aggregateId as text), cast(:version as bigint), cast(:type as text), event.payload, event.headers,
            cast(:traceparent as text), cast(:tracestate as text), cast(:occurredAt as timestamptz)
       from (values (cast(:payload as jsonb), cast(:headers as jsonb))) as event (payload, headers)
      where coalesce(octet_length(event.payload::text), 0) + octet_length(event.headers::text) <= :maxBytes
     returning payload::text as payload,
               coalesce(octet_length(payload::text), 0) + octet_length(headers::text) as bytes,
               tx_id::text as xid`,
    {
      id: event.id,
      lane: event.lane,
      keyHash: event.keyHash,
      aggregateType: event.aggregate.type,
      aggregateId: event.aggregate.id,
      version: event.version,
      type: event.type,
      payload: event.payload,
      headers: JSON.stringify(event.headers),
      traceparent: event.trace?.traceparent ?? null,
      tracestate: event.trace?.tracestate ?? null,
      // Text in UTC: the driver would write a Date in the process's time zone.
      occurredAt: event.occurredAt.toISOString(),
      maxBytes,
    },
  )
  return rows[0] ?? null
}

/**
 * Stores `events` in their order, all of them or, when one has more than
 * `maxBytes`, none; resolves to how each looks as stored.
 *
 * One statement with one array a column: the number of bind values does not
 * grow with the events. `seq` is drawn after the sort, so append order is the
 * order given. The size is that of jsonb's own text, which is what is sent.
 * Concurrent appends of one aggregate wait before this statement, in
 * `lockAggregates` or at the aggregate's row.
 */
export async function insertEvents(
  trx: Knex.Transaction,
  events: readonly TracedEvent[],
  maxBytes: number,
): Promise<readonly StoredEvent[]> {
  const { rows } = await trx.raw<{ rows: StoredEvent[] }>(
    `with given as materialized (
       select event.*,
              coalesce(octet_length(event.payload::text), 0) + octet_length(event.headers::text) as bytes
         from unnest(
                cast(:ids as uuid[]), cast(:lanes as smallint[]), cast(:keyHashes as integer[]),
                cast(:aggregateTypes as text[]), cast(:aggregateIds as text[]), cast(:versions as bigint[]),
                cast(:types as text[]), cast(:payloads as jsonb[]), cast(:headers as jsonb[]),
                cast(:traceparents as text[]), cast(:tracestates as text[]), cast(:occurredAt as timestamptz[]))
              with ordinality as event (
                id, lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type,
                payload, headers, traceparent, tracestate, occurred_at, position)),
     stored as (
       insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type,
                           payload, headers, traceparent, tracestate, occurred_at)
       select id, lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type,
              payload, headers, traceparent, tracestate, occurred_at
         from given
        where (select max(bytes) from given) <= :maxBytes
        order by position)
     select payload::text as payload,
            bytes,
            (select pg_current_xact_id()::text) as xid
       from given
      order by position`,
    {
      ids: events.map(({ id }) => id),
      lanes: events.map(({ lane }) => lane),
      keyHashes: events.map(({ keyHash }) => keyHash),
      aggregateTypes: events.map(({ aggregate }) => aggregate.type),
      aggregateIds: events.map(({ aggregate }) => aggregate.id),
      versions: events.map(({ version }) => version),
      types: events.map(({ type }) => type),
      payloads: events.map(({ payload }) => payload),
      headers: events.map(({ headers }) => JSON.stringify(headers)),
      traceparents: events.map(({ trace }) => trace?.traceparent ?? null),
      tracestates: events.map(({ trace }) => trace?.tracestate ?? null),
      occurredAt: events.map(({ occurredAt }) => occurredAt.toISOString()),
      maxBytes,
    },
  )
  return rows
}

/**
 * The transaction's id, `null` if it has written nothing. Rejects with SQLSTATE
 * 25P02 when an earlier statement failed. Reads no table, so no index serves it.
 */
export async function selectTransactionId(trx: Knex.Transaction): Promise<string | null> {
  const { rows } = await trx.raw<{ rows: { xid: string | null }[] }>(
    `select pg_current_xact_id_if_assigned()::text as xid`,
  )
  return rows[0]?.xid ?? null
}
