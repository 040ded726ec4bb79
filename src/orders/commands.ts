/** What can be done to orders. Each command: lock, decide, save, append, in one transaction. */
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { appendToOutbox, inTransaction } from '../messaging/index.ts'
import { cancel, type Decision, type Order, place, ship } from './order.ts'
import { insertOrder, insertOrderEvent, lockOrder, updateOrder } from './queries.ts'
import { OrderRefusal } from './refusal.ts'
import { isOrderId, type PlaceOrder } from './validation.ts'

/** What a command has done, once it has committed. */
export interface Committed {
  readonly order: Order
  /** The ids of the events that it stated. */
  readonly eventIds: readonly string[]
}

/** Places an order. Throws {@link OrderRefusal} with everything that is wrong with `command`. */
export async function placeOrder(db: Knex, command: PlaceOrder, now = new Date()): Promise<Committed> {
  const decision = place(uuidv7(), command, now)
  return await inTransaction(db, async (trx) => {
    await insertOrder(trx, decision.order)
    return await append(trx, decision)
  })
}

/** Ships an order. Throws {@link OrderRefusal} if there is none or it does not wait for shipping. */
export async function shipOrder(db: Knex, id: string, now = new Date()): Promise<Committed> {
  return await changeOrder(db, id, (order) => ship(order, now))
}

/** Cancels an order. Throws {@link OrderRefusal} if there is none, it was shipped or cancelled, or `reason` is bad. */
export async function cancelOrder(db: Knex, id: string, reason: string, now = new Date()): Promise<Committed> {
  return await changeOrder(db, id, (order) => cancel(order, reason, now))
}

async function changeOrder(db: Knex, id: string, decide: (order: Order) => Decision): Promise<Committed> {
  if (!isOrderId(id)) throw unknownOrder()
  return await inTransaction(db, async (trx) => {
    const order = await lockOrder(trx, id)
    if (!order) throw unknownOrder()
    const decision = decide(order)
    await updateOrder(trx, decision.order)
    return await append(trx, decision)
  })
}

/** The order's row is locked, or not yet known to anyone, in every command: the outbox need not lock again. */
async function append(trx: Knex.Transaction, { order, event }: Decision): Promise<Committed> {
  const [envelope] = await appendToOutbox(trx, [event], { locked: true })
  if (!envelope) throw new Error('The outbox returned no envelope for an event')
  const { version, type, occurredAt } = event
  await insertOrderEvent(trx, { id: envelope.id, orderId: order.id, version, type, occurredAt })
  return { order, eventIds: [envelope.id] }
}

function unknownOrder(): OrderRefusal {
  return new OrderRefusal('NOT_FOUND', 'There is no order with this id')
}
