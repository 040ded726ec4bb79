/** The relay's SQL on `outbox`. One function, one statement; rows do not leave this file. */
import type { Knex } from 'knex'
import type { OutboxEvent } from '../envelope.ts'
import type { Exclusion, HeldLimit, KeyRef, Ownership, ReadRequest, Settlement } from '../source.ts'

interface OutboxRow {
  id: string
  seq: string
  lane: number
  key_hash: number
  aggregate_type: string
  aggregate_id: string
  aggregate_version: string | null
  event_type: string
  payload: string | null
  headers: Record<string, string>
  traceparent: string | null
  tracestate: string | null
  occurred_at: Date
  created_at: Date
  topic: string | null
}

/**
 * The oldest pending events of each lane, as many as asked for of each.
 *
 * No row is locked, as the lease already gives one owner the sole right to
 * publish a lane. And none is missed: a transaction that commits late leaves a
 * gap behind any "greater than the last one" cursor, so this looks for what is
 * pending and trusts no cursor. Served by outbox_pending, one probe a lane.
 * The lease is looked at in the same snapshot as the events: a key that a later
 * owner holds there would hide its first event, and not yet the ones behind it.
 * `before` is the size of what comes earlier in the lane, so that a lane's
 * first event is read however large it is.
 */
export async function selectPending(
  db: Knex,
  ownership: Ownership,
  request: ReadRequest,
): Promise<readonly OutboxEvent[]> {
  const { rows } = await db.raw<{ rows: OutboxRow[] }>(
    `select e.id, e.seq, e.lane, e.key_hash, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type,
            e.payload, e.headers, e.traceparent, e.tracestate, e.occurred_at, e.created_at, e.topic
       from unnest(cast(:lanes as smallint[]), cast(:limits as integer[])) as l (lane, amount)
       join unnest(cast(:leasedLanes as smallint[]), cast(:tokens as bigint[])) as claimed (lane, token)
         on claimed.lane = l.lane
       join lane_leases
         on lane_leases.lane = claimed.lane
        and lane_leases.token = claimed.token
        and lane_leases.owner = :owner
      cross join lateral (
            select c.*,
                   sum(coalesce(octet_length(c.payload), 0)) over (order by c.seq rows between unbounded preceding and 1 preceding) as before
              from (select id, seq, outbox.lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type,
                           payload::text as payload, headers, traceparent, tracestate, occurred_at, created_at, topic
                      from outbox
                     where outbox.lane = l.lane
                       and published_at is null
                       and not held
                       and seq <> all(cast(:inHand as bigint[]))
                       and (cardinality(cast(:topics as text[])) = 0
                            or not exists (
                               select 1
                                 from unnest(cast(:topics as text[]), cast(:types as text[]), cast(:partitions as integer[]), cast(:counts as integer[]))
                                      as resting (topic, aggregate_type, partition, partition_count)
                                where (resting.topic = outbox.topic or (outbox.topic is null and resting.aggregate_type = outbox.aggregate_type))
                                  and (resting.partition is null
                                       or (key_hash & 2147483647) % resting.partition_count = resting.partition)))
                     order by seq
                     limit l.amount) as c) as e
      where e.before is null
         or e.before < :maxBytesPerLane
      order by e.seq`,
    {
      lanes: request.lanes.map(({ lane }) => lane),
      limits: request.lanes.map(({ limit }) => limit),
      owner: ownership.owner,
      leasedLanes: ownership.leases.map(({ lane }) => lane),
      tokens: ownership.leases.map(({ token }) => String(token)),
      inHand: toArrayText(request.inHand),
      maxBytesPerLane: request.maxBytesPerLane,
      ...toColumns(request.exclusions),
    },
  )
  return rows.map(toOutboxEvent)
}

/**
 * Marks events as published, where `ownership` still holds their lanes.
 *
 * The lease rows are locked for share, in lane order, or a takeover between
 * this statement's snapshot and its commit would slip through. Served by the
 * primary key.
 */
export async function markPublished(
  db: Knex,
  ownership: Ownership,
  events: readonly OutboxEvent[],
): Promise<Settlement> {
  const { rows } = await db.raw<{ rows: { changed: number; lanes: number[] }[] }>(
    `with held_lease as materialized (
       select lane_leases.lane
         from lane_leases
         join unnest(cast(:lanes as smallint[]), cast(:tokens as bigint[])) as claimed (lane, token)
           on claimed.lane = lane_leases.lane
          and claimed.token = lane_leases.token
        where lane_leases.owner = :owner
        order by lane_leases.lane
          for share of lane_leases),
     marked as (
       update outbox
          set published_at = clock_timestamp(),
              held = false
         from held_lease
        where outbox.id = any(cast(:ids as uuid[]))
          and outbox.lane = held_lease.lane
          and outbox.published_at is null
       returning 1)
     select (select count(*)::integer from marked) as changed,
            (select coalesce(array_agg(lane), '{}') from held_lease) as lanes`,
    { ...toLeaseColumns(ownership), ids: toArrayText(events.map(({ id }) => id)) },
  )
  return toSettlement(ownership, rows[0])
}

/**
 * Counts one attempt on an event before it is sent; resolves to the count, 0
 * when the lane is lost. Fenced as in `markPublished`.
 */
export async function countAttempt(db: Knex, ownership: Ownership, event: OutboxEvent): Promise<number> {
  const { rows } = await db.raw<{ rows: { attempts: number }[] }>(
    `with held_lease as materialized (
       select lane_leases.lane
         from lane_leases
         join unnest(cast(:lanes as smallint[]), cast(:tokens as bigint[])) as claimed (lane, token)
           on claimed.lane = lane_leases.lane
          and claimed.token = lane_leases.token
        where lane_leases.owner = :owner
          for share of lane_leases)
     update outbox
        set attempts = outbox.attempts + 1
       from held_lease
      where outbox.id = :id
        and outbox.lane = held_lease.lane
     returning outbox.attempts`,
    { ...toLeaseColumns(ownership), id: event.id },
  )
  return rows[0]?.attempts ?? 0
}

/**
 * Moves up to a thousand pending events of a key out of the pending index; the
 * rest is moved when the relay meets it. The caller holds the key's row and the
 * lane's lease. Served by outbox_pending.
 *
 * What is pending is asked twice: where a mark is under way, Postgres waits for
 * it and then looks at the row again by the outer conditions alone.
 */
export async function moveToHeld(trx: Knex.Transaction, key: KeyRef, ruleTopic: string): Promise<number> {
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `update outbox
        set held = true
      where id in (
            select id
              from outbox
             where lane = :lane
               and published_at is null
               and not held
               and aggregate_type = :aggregateType
               and aggregate_id = :aggregateId
               and coalesce(topic, :ruleTopic) = :topic
             order by seq
             limit 1000)
        and published_at is null
        and not held`,
    { ...toKeyColumns(key), ruleTopic },
  )
  return rowCount
}

/** Sets an event's count of attempts back. Fenced as in `markPublished`, by a caller that has locked the lease. */
export async function resetAttempts(trx: Knex.Transaction, event: OutboxEvent): Promise<number> {
  return await trx('outbox').where({ id: event.id }).andWhere('attempts', '>', 0).update({ attempts: 0 })
}

/**
 * A held key's events in append order, ending at the limit's bytes as in
 * `selectPending`. Served by outbox_held.
 */
export async function selectHeld(
  db: Knex,
  key: KeyRef,
  ruleTopic: string,
  { count, bytes }: HeldLimit,
): Promise<readonly OutboxEvent[]> {
  const { rows } = await db.raw<{ rows: OutboxRow[] }>(
    `select e.id, e.seq, e.lane, e.key_hash, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type,
            e.payload, e.headers, e.traceparent, e.tracestate, e.occurred_at, e.created_at, e.topic
       from (select c.*,
                    sum(coalesce(octet_length(c.payload), 0)) over (order by c.seq rows between unbounded preceding and 1 preceding) as before
               from (select id, seq, lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type,
                            payload::text as payload, headers, traceparent, tracestate, occurred_at, created_at, topic
                       from outbox
                      where held
                        and published_at is null
                        and lane = :lane
                        and aggregate_type = :aggregateType
                        and aggregate_id = :aggregateId
                        and coalesce(topic, :ruleTopic) = :topic
                      order by seq
                      limit :count) as c) as e
      where e.before is null
         or e.before < :bytes
      order by e.seq`,
    { ...toKeyColumns(key), ruleTopic, count, bytes },
  )
  return rows.map(toOutboxEvent)
}

/** Which of `lanes` have pending events. One probe of outbox_pending a lane. */
export async function selectPendingLanes(db: Knex, lanes: readonly number[]): Promise<readonly number[]> {
  const { rows } = await db.raw<{ rows: { lane: number }[] }>(
    `select l.lane
       from unnest(cast(:lanes as smallint[])) as l (lane)
      where exists (
            select 1
              from outbox
             where outbox.lane = l.lane
               and published_at is null
               and not held)`,
    { lanes },
  )
  return rows.map(({ lane }) => lane)
}

/** The leases as the columns of a fenced statement. */
export function toLeaseColumns({ owner, leases }: Ownership) {
  return { owner, lanes: leases.map(({ lane }) => lane), tokens: leases.map(({ token }) => String(token)) }
}

/** What a fenced statement did, from the lanes whose lease it found. */
export function toSettlement({ leases }: Ownership, row: { changed: number; lanes: number[] } | undefined): Settlement {
  const found = new Set(row?.lanes)
  const fencedLanes = leases.flatMap(({ lane }) => (found.has(lane) ? [] : [lane]))
  return { changed: row?.changed ?? 0, fencedLanes }
}

function toKeyColumns({ lane, topic, aggregateType, aggregateId }: KeyRef) {
  return { lane, topic, aggregateType, aggregateId }
}

function toColumns(exclusions: readonly Exclusion[]) {
  // One row for each type that the rule sends to a topic, or one that matches by
  // the topic's name alone.
  const resting = exclusions.flatMap(({ topic, aggregateTypes, partition }) =>
    (aggregateTypes.length === 0 ? [null] : aggregateTypes).map((type) => ({ topic, type, partition })),
  )
  return {
    topics: resting.map(({ topic }) => topic),
    types: resting.map(({ type }) => type),
    partitions: resting.map(({ partition }) => partition?.number ?? null),
    counts: resting.map(({ partition }) => partition?.count ?? null),
  }
}

function toOutboxEvent(row: OutboxRow): OutboxEvent {
  return {
    id: row.id,
    seq: BigInt(row.seq),
    lane: row.lane,
    keyHash: row.key_hash,
    aggregate: { type: row.aggregate_type, id: row.aggregate_id },
    version: row.aggregate_version === null ? null : Number(row.aggregate_version),
    type: row.event_type,
    payload: row.payload,
    headers: row.headers,
    trace:
      row.traceparent === null
        ? null
        : { traceparent: row.traceparent, ...(row.tracestate === null ? {} : { tracestate: row.tracestate }) },
    occurredAt: row.occurred_at,
    createdAt: row.created_at,
    topic: row.topic,
  }
}

/** Postgres' text for an array of numbers or uuids. The driver's own writing looks at each value for quotes, thousands a second. */
function toArrayText(values: readonly (bigint | string)[]): string {
  return `{${values.join()}}`
}
