/** The backlog that contenders drain: the same events for each, put into the outbox at once. */
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { laneOf, murmur2 } from '../src/messaging/outbox/lane.ts'

export interface BacklogShape {
  readonly events: number
  /** Events that every contender publishes before it is measured, so that topics, plans and code are warm. */
  readonly warmEvents: number
  /** Bytes of each payload, about. */
  readonly bytes: number
  /** Events of each aggregate. */
  readonly perAggregate: number
}

/** Makes the table that backlogs are copied from. */
export async function prepareBacklog(
  db: Knex,
  { events, warmEvents, bytes, perAggregate }: BacklogShape,
): Promise<void> {
  await db.raw(
    `create unlogged table bench_events (
       position   integer  primary key,
       id         uuid     not null,
       lane       smallint not null,
       key_hash   integer  not null,
       key        text     not null,
       version    bigint   not null,
       payload    jsonb    not null
     )`,
  )
  const total = warmEvents + events
  const aggregates = Math.max(1, Math.ceil(total / perAggregate))
  const keys = Array.from({ length: aggregates }, () => uuidv7())
  for (let from = 0; from < total; from += 10_000) {
    const rows = Array.from({ length: Math.min(10_000, total - from) }, (_, index) =>
      rowAt(from + index, { keys, bytes }),
    )
    await db.raw(
      `insert into bench_events (position, id, lane, key_hash, key, version, payload)
       select position, id, lane, key_hash, key, version, payload
         from jsonb_to_recordset(:rows) as row (
              position integer, id uuid, lane smallint, key_hash integer, key text, version bigint, payload jsonb)`,
      { rows: JSON.stringify(rows) },
    )
  }
  await db.raw('analyze bench_events')
}

/**
 * The textbook relay's own outbox: the same columns, and the index that its query
 * wants in place of those that ours want.
 */
export async function createTextbookOutbox(db: Knex): Promise<void> {
  await db.raw(
    `create table textbook_outbox (like outbox including defaults including identity including constraints);
     alter table textbook_outbox add primary key (id);
     create index textbook_outbox_pending on textbook_outbox (seq) where published_at is null`,
  )
}

/** Empties `table`, as if the last contender had never been. */
export async function emptyOutbox(db: Knex, table: string): Promise<void> {
  await db.raw('truncate table :table: restart identity', { table })
  await db.raw('checkpoint')
}

/** Which events to put into an outbox, and how many of a hundred in traces that are recorded. */
export interface Filling {
  readonly from: number
  readonly to: number
  readonly sampledPercent?: number | undefined
}

/** Puts the events at `from` up to `to` into `table`, in one transaction, and tells the planner of them. */
export async function fillOutbox(db: Knex, table: string, { from, to, sampledPercent }: Filling): Promise<void> {
  await db.raw(
    `insert into :table: (id, lane, key_hash, aggregate_type, aggregate_id, aggregate_version, event_type, payload, occurred_at, traceparent)
     select id, lane, key_hash, 'order', key, version, 'OrderPlaced', payload, now(),
            case when :percent::integer is not null then
              '00-' || md5(id::text) || '-' || left(md5(position::text), 16)
              || case when position % 100 < :percent then '-01' else '-00' end
            end
       from bench_events
      where position >= :from
        and position < :to
      order by position`,
    { table, from, to, percent: sampledPercent ?? null },
  )
  await db.raw('analyze :table:', { table })
}

/**
 * Resolves once nothing of `table` is pending. Rejects after `withinMs`.
 *
 * Until the last event is published only that one is looked at, by its id, so
 * that the watching costs nothing.
 */
export async function drained(
  db: Knex,
  table: string,
  { last, withinMs }: { last: number; withinMs: number },
): Promise<void> {
  const deadline = performance.now() + withinMs
  while (performance.now() < deadline) {
    const { rows } = await db.raw<{ rows: { drained: boolean }[] }>(
      `select case when (
                select published_at is not null
                  from :table:
                 where id = (select id from bench_events where position = :last))
              then not exists (
                select from :table:
                 where published_at is null
                   and not held)
              else false end as drained,
              pg_sleep(0.01)`,
      { table, last },
    )
    if (rows[0]?.drained) return
  }
  throw new Error(`The backlog was not drained within ${withinMs} ms`)
}

function rowAt(position: number, { keys, bytes }: { keys: readonly string[]; bytes: number }) {
  const key = keys[position % keys.length] ?? ''
  const keyHash = murmur2(key)
  const payload = { orderId: key, customerId: `customer-${position % 500}`, totalCents: position, note: '' }
  const rest = Math.max(0, bytes - JSON.stringify(payload).length)
  return {
    position,
    id: uuidv7(),
    lane: laneOf(keyHash),
    key_hash: keyHash,
    key,
    version: Math.floor(position / keys.length) + 1,
    payload: { ...payload, note: 'x'.repeat(rest) },
  }
}
