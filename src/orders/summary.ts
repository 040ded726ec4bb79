/** The read model of what each customer's orders add up to, kept from the orders' events. */
import { type AnyEventOf, defineSetHandler } from '../messaging/index.ts'
import type { OrderEventPayloads } from './events.ts'
import { addToSummaries, type SummaryChange } from './summary-queries.ts'

type OrderEventReceived = AnyEventOf<OrderEventPayloads>

/** What keeps `customer_summary`: a whole batch of events in one statement. */
export const summaryHandlers = defineSetHandler<OrderEventPayloads>(
  ['OrderPlaced', 'OrderShipped', 'OrderCancelled'],
  async (trx, events) => {
    await addToSummaries(trx, changesOf(events))
  },
)

/**
 * What `events` add, customer by customer. Pure. The order of events does not matter to a sum.
 * Throws for a payload without customer or total: nothing of it can be counted.
 */
export function changesOf(events: readonly OrderEventReceived[]): readonly SummaryChange[] {
  const byCustomer = new Map<string, SummaryChange>()
  for (const event of events) {
    const { customerId, totalCents } = countable(event)
    byCustomer.set(customerId, add(byCustomer.get(customerId) ?? nothing(customerId), event.type, totalCents))
  }
  return [...byCustomer.values()]
}

function add(sum: SummaryChange, type: OrderEventReceived['type'], totalCents: number): SummaryChange {
  switch (type) {
    case 'OrderPlaced':
      return { ...sum, placedCount: sum.placedCount + 1, placedTotalCents: sum.placedTotalCents + totalCents }
    case 'OrderShipped':
      return { ...sum, shippedCount: sum.shippedCount + 1, shippedTotalCents: sum.shippedTotalCents + totalCents }
    case 'OrderCancelled':
      return {
        ...sum,
        cancelledCount: sum.cancelledCount + 1,
        cancelledTotalCents: sum.cancelledTotalCents + totalCents,
      }
  }
}

function nothing(customerId: string): SummaryChange {
  return {
    customerId,
    placedCount: 0,
    placedTotalCents: 0,
    shippedCount: 0,
    shippedTotalCents: 0,
    cancelledCount: 0,
    cancelledTotalCents: 0,
  }
}

/** The types hold at the producer's word alone; what came over the topic is looked at. */
function countable({ type, id, payload }: OrderEventReceived): { customerId: string; totalCents: number } {
  const { customerId, totalCents } = (payload ?? {}) as { customerId?: unknown; totalCents?: unknown }
  if (typeof customerId !== 'string' || customerId === '' || !Number.isSafeInteger(totalCents)) {
    throw new Error(`${type} ${id} has no customerId or no whole totalCents`)
  }
  return { customerId, totalCents: totalCents as number }
}
