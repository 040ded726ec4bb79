/**
 * An order's life, as pure decisions: each takes what is, and says what becomes
 * of it and which event that is. Storing both is the caller's part.
 */
import {
  ORDER_AGGREGATE,
  type OrderEvent,
  type OrderEventPayloads,
  type OrderEventType,
  type OrderItem,
} from './events.ts'
import { OrderRefusal, refuseIfAny } from './refusal.ts'
import { type PlaceOrder, problemsOf, reasonProblems, totalOf } from './validation.ts'

interface OrderFacts {
  readonly id: string
  /** Grows by one with each event. */
  readonly version: number
  readonly customerId: string
  readonly items: readonly OrderItem[]
  readonly totalCents: number
  readonly placedAt: Date
}

/** Where an order is in its life. Each phase carries what is known from then on. */
export type Order = OrderFacts &
  (
    | { readonly phase: 'placed' }
    | { readonly phase: 'shipped'; readonly shippedAt: Date }
    | { readonly phase: 'cancelled'; readonly cancelledAt: Date; readonly reason: string }
  )

/** What a command comes to. */
export interface Decision {
  readonly order: Order
  readonly event: OrderEvent
}

/** Decides on a new order. Throws {@link OrderRefusal} with every problem of `command`. */
export function place(id: string, command: PlaceOrder, now: Date): Decision {
  refuseIfAny(problemsOf(command))
  const { customerId } = command
  const items = command.items.map(({ sku, quantity, unitPriceCents }) => ({ sku, quantity, unitPriceCents }))
  const totalCents = totalOf(items)
  const order: Order = { phase: 'placed', id, version: 1, customerId, items, totalCents, placedAt: now }
  return {
    order,
    event: eventOf(order, 'OrderPlaced', now, {
      orderId: id,
      customerId,
      items,
      totalCents,
      placedAt: now.toISOString(),
    }),
  }
}

/** Decides on shipping. Throws {@link OrderRefusal} unless the order waits for it. */
export function ship(before: Order, now: Date): Decision {
  const order: Order = { ...waiting(before, 'shipped'), phase: 'shipped', shippedAt: now }
  const { id, customerId, totalCents } = order
  return {
    order,
    event: eventOf(order, 'OrderShipped', now, { orderId: id, customerId, totalCents, shippedAt: now.toISOString() }),
  }
}

/** Decides on a cancellation. Throws {@link OrderRefusal} once the order was shipped or cancelled, or for a bad `reason`. */
export function cancel(before: Order, reason: string, now: Date): Decision {
  refuseIfAny(reasonProblems(reason))
  const order: Order = { ...waiting(before, 'cancelled'), phase: 'cancelled', cancelledAt: now, reason }
  const { id, customerId, totalCents } = order
  return {
    order,
    event: eventOf(order, 'OrderCancelled', now, {
      orderId: id,
      customerId,
      totalCents,
      reason,
      cancelledAt: now.toISOString(),
    }),
  }
}

/** What is carried on from an order that may still become `wish`, one version further. */
function waiting(order: Order, wish: string): OrderFacts {
  switch (order.phase) {
    case 'placed': {
      const { id, version, customerId, items, totalCents, placedAt } = order
      return { id, version: version + 1, customerId, items, totalCents, placedAt }
    }
    case 'shipped':
    case 'cancelled':
      throw new OrderRefusal(
        'ILLEGAL_TRANSITION',
        wish === order.phase
          ? `Order ${order.id} is ${order.phase} already`
          : `Order ${order.id} cannot be ${wish}: it is ${order.phase}`,
      )
  }
}

function eventOf<Type extends OrderEventType>(
  order: Order,
  type: Type,
  occurredAt: Date,
  payload: OrderEventPayloads[Type],
) {
  return { type, aggregate: { type: ORDER_AGGREGATE, id: order.id }, version: order.version, payload, occurredAt }
}
