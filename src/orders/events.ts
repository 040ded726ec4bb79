/** The facts that orders state, and what each carries. Foreign consumers rely on these shapes: fields are added, never changed. */
import type { DomainEvent } from '../messaging/index.ts'

export interface OrderItem {
  readonly sku: string
  readonly quantity: number
  readonly unitPriceCents: number
}

/** Payloads by event type. Each names the customer, so that a consumer needs no look-up. Times are ISO 8601 in UTC. */
export interface OrderEventPayloads {
  readonly OrderPlaced: {
    readonly orderId: string
    readonly customerId: string
    readonly items: readonly OrderItem[]
    readonly totalCents: number
    readonly placedAt: string
  }
  readonly OrderShipped: {
    readonly orderId: string
    readonly customerId: string
    readonly totalCents: number
    readonly shippedAt: string
  }
  readonly OrderCancelled: {
    readonly orderId: string
    readonly customerId: string
    readonly totalCents: number
    readonly reason: string
    readonly cancelledAt: string
  }
}

export type OrderEventType = keyof OrderEventPayloads

/** The aggregate type of every order's events; it decides their topic, `order.events`. */
export const ORDER_AGGREGATE = 'order'

/** An event of an order, with the payload that belongs to its type. */
export type OrderEvent = {
  [Type in OrderEventType]: DomainEvent<Type, OrderEventPayloads[Type]> & {
    readonly version: number
    readonly occurredAt: Date
  }
}[OrderEventType]
