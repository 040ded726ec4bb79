/** What can be asked about orders. */
import type { Knex } from 'knex'
import type { Order } from './order.ts'
import { selectOrder, selectOrders } from './queries.ts'
import { OrderRefusal } from './refusal.ts'
import { type CustomerSummary, selectSummary } from './summary-queries.ts'
import { isCustomerId, isOrderId } from './validation.ts'

/** Orders that one page can have. */
export const MAX_PAGE_SIZE = 100
const CURSOR_PREFIX = 'order:'

/** One page of orders, newest first. */
export interface OrderPage {
  readonly orders: readonly Order[]
  readonly hasNextPage: boolean
  readonly hasPreviousPage: boolean
}

/** One order; `null` if there is none with this id, whatever its form. */
export async function findOrder(db: Knex, id: string): Promise<Order | null> {
  return isOrderId(id) ? await selectOrder(db, id) : null
}

/** What a customer's orders add up to; `null` if there is nothing yet, or can be nothing under this id. */
export async function findSummary(db: Knex, customerId: string): Promise<CustomerSummary | null> {
  return isCustomerId(customerId) ? await selectSummary(db, customerId) : null
}

/** The `first` orders after the cursor `after`. Throws {@link OrderRefusal} for a page size or cursor that cannot be used. */
export async function listOrders(
  db: Knex,
  { first, after }: { first: number; after: string | null },
): Promise<OrderPage> {
  if (first < 1 || first > MAX_PAGE_SIZE) {
    throw badInput('first', `first must be from 1 to ${MAX_PAGE_SIZE}`)
  }
  const before = after === null ? null : idOfCursor(after)
  // One more than asked for tells whether there is a next page.
  const found = await selectOrders(db, before, first + 1)
  return { orders: found.slice(0, first), hasNextPage: found.length > first, hasPreviousPage: before !== null }
}

/** The cursor that stands for `order`. Opaque to clients, so that it may change. */
export function cursorOf({ id }: Order): string {
  return Buffer.from(`${CURSOR_PREFIX}${id}`).toString('base64url')
}

function idOfCursor(cursor: string): string {
  const text = Buffer.from(cursor, 'base64url').toString()
  const id = text.slice(CURSOR_PREFIX.length)
  if (!text.startsWith(CURSOR_PREFIX) || !isOrderId(id)) {
    throw badInput('after', 'after must be a cursor from an earlier page: its endCursor or an edge’s cursor')
  }
  return id
}

function badInput(field: string, message: string): OrderRefusal {
  return new OrderRefusal('BAD_INPUT', message, [{ path: [field], message }])
}
