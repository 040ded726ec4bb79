/** The SQL on `orders` and `order_events`. One function, one statement; rows do not leave this file. */
import type { Knex } from 'knex'
import type { OrderItem } from './events.ts'
import type { Order } from './order.ts'

/** How far an event has travelled. */
export type OrderEventStatus = 'PENDING' | 'HELD' | 'PARKED' | 'PUBLISHED' | 'SKIPPED'

/** One event of an order, as the API shows it. */
export interface OrderEventView {
  readonly id: string
  readonly orderId: string
  readonly type: string
  readonly version: number
  readonly occurredAt: Date
  readonly status: OrderEventStatus
  readonly publishedAt: Date | null
}

interface OrderRow {
  readonly id: string
  readonly version: number
  readonly phase: Order['phase']
  readonly customer_id: string
  readonly items: readonly OrderItem[]
  readonly total_cents: number
  readonly placed_at: Date
  readonly shipped_at: Date | null
  readonly cancelled_at: Date | null
  readonly cancel_reason: string | null
}

interface OrderEventRow {
  readonly event_id: string
  readonly order_id: string
  readonly event_type: string
  readonly version: number
  readonly occurred_at: Date
  readonly status: OrderEventStatus
  readonly published_at: Date | null
}

/** Stores a new order. Nobody else knows its id yet, so there is nothing to lock. */
export async function insertOrder(trx: Knex.Transaction, order: Order): Promise<void> {
  await trx.raw(
    `insert into orders (id, version, phase, customer_id, items, total_cents, placed_at)
     values (:id, :version, :phase, :customerId, :items::jsonb, :totalCents, :placedAt)`,
    { ...order, items: JSON.stringify(order.items) },
  )
}

/**
 * One order, locked until the transaction ends; `null` if there is none.
 *
 * A second command on the order waits here and then reads what the first has
 * committed, so versions and events follow in commit order. Served by the primary key.
 */
export async function lockOrder(trx: Knex.Transaction, id: string): Promise<Order | null> {
  const { rows } = await trx.raw<{ rows: OrderRow[] }>(
    `select id, version, phase, customer_id, items, total_cents, placed_at, shipped_at, cancelled_at, cancel_reason
       from orders
      where id = :id
        for update`,
    { id },
  )
  return rows[0] ? toOrder(rows[0]) : null
}

/** Stores what became of an order that this transaction has locked. */
export async function updateOrder(trx: Knex.Transaction, order: Order): Promise<void> {
  await trx.raw(
    `update orders
        set version = :version,
            phase = :phase,
            shipped_at = :shippedAt,
            cancelled_at = :cancelledAt,
            cancel_reason = :cancelReason
      where id = :id`,
    {
      id: order.id,
      version: order.version,
      phase: order.phase,
      shippedAt: order.phase === 'shipped' ? order.shippedAt : null,
      cancelledAt: order.phase === 'cancelled' ? order.cancelledAt : null,
      cancelReason: order.phase === 'cancelled' ? order.reason : null,
    },
  )
}

/**
 * Notes an event in the order's own history, which stays when the outbox
 * forgets it. The primary key refuses a version that is there already: a second
 * guard behind the row lock.
 */
export async function insertOrderEvent(
  trx: Knex.Transaction,
  event: {
    readonly id: string
    readonly orderId: string
    readonly version: number
    readonly type: string
    readonly occurredAt: Date
  },
): Promise<void> {
  await trx.raw(
    `insert into order_events (order_id, version, event_id, event_type, occurred_at)
     values (:orderId, :version, :id, :type, :occurredAt)`,
    { ...event },
  )
}

/** One order as last committed; `null` if there is none. Served by the primary key. */
export async function selectOrder(db: Knex, id: string): Promise<Order | null> {
  const { rows } = await db.raw<{ rows: OrderRow[] }>(
    `select id, version, phase, customer_id, items, total_cents, placed_at, shipped_at, cancelled_at, cancel_reason
       from orders
      where id = :id`,
    { id },
  )
  return rows[0] ? toOrder(rows[0]) : null
}

/**
 * Orders older than `before`, or the newest where that is `null`; at most `limit`, newest first.
 *
 * The id is the cursor: it is unique and exact, where times can be equal or
 * lose digits. Served by the primary key, read backwards.
 */
export async function selectOrders(db: Knex, before: string | null, limit: number): Promise<Order[]> {
  const { rows } = await db.raw<{ rows: OrderRow[] }>(
    `select id, version, phase, customer_id, items, total_cents, placed_at, shipped_at, cancelled_at, cancel_reason
       from orders
      where id < coalesce(:before::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      order by id desc
      limit :limit`,
    { before, limit },
  )
  return rows.map(toOrder)
}

/**
 * The events of all of `orderIds`, in order of version.
 *
 * An event that the outbox no longer keeps was published, since only published
 * rows are pruned, unless the relay's dead letters say that it was skipped. One that waits behind a held key is shown as that key is,
 * also before the relay has met it. Served by the primary keys of
 * `order_events` and `outbox` and by dead_letters_event; `held_keys` is small and normally empty.
 */
export async function selectOrderEvents(db: Knex, orderIds: readonly string[]): Promise<OrderEventView[]> {
  const { rows } = await db.raw<{ rows: OrderEventRow[] }>(
    `select e.event_id, e.order_id, e.event_type, e.version, e.occurred_at,
            case when d.event_id is null then o.published_at end as published_at,
            case
              when d.event_id is not null then 'SKIPPED'
              when o.id is null or o.published_at is not null then 'PUBLISHED'
              when k.parked then 'PARKED'
              when k.parked is not null or o.held then 'HELD'
              else 'PENDING'
            end as status
       from order_events as e
       left join outbox as o
         on o.id = e.event_id
       left join dead_letters as d
         on d.holder = 'relay'
        and d.event_id = e.event_id
        and d.state = 'skipped'
       left join lateral (
            select bool_or(state = 'parked') as parked
              from held_keys
             where holder = 'relay'
               and aggregate_type = o.aggregate_type
               and aggregate_id = o.aggregate_id
               and o.published_at is null) as k
         on true
      where e.order_id = any(:orderIds::uuid[])
      order by e.order_id, e.version`,
    { orderIds },
  )
  return rows.map((row) => ({
    id: row.event_id,
    orderId: row.order_id,
    type: row.event_type,
    version: row.version,
    occurredAt: row.occurred_at,
    status: row.status,
    publishedAt: row.published_at,
  }))
}

function toOrder(row: OrderRow): Order {
  const facts = {
    id: row.id,
    version: row.version,
    customerId: row.customer_id,
    items: row.items,
    totalCents: row.total_cents,
    placedAt: row.placed_at,
  }
  // A check constraint holds that each phase has its own columns, so the last return is for `placed` alone.
  if (row.shipped_at) return { ...facts, phase: 'shipped', shippedAt: row.shipped_at }
  if (row.cancelled_at)
    return { ...facts, phase: 'cancelled', cancelledAt: row.cancelled_at, reason: row.cancel_reason ?? '' }
  return { ...facts, phase: 'placed' }
}
