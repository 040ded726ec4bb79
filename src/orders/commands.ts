/** What can be done to orders. Each command: lock, decide, save, append, in one transaction. */
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { appendToOutbox, inTransaction, type TopicRule } from '../messaging/index.ts'
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

/** How commands are carried out. */
export interface CommandOptions {
  /** The relay's topic rule, for the names in traces. @defaultValue the outbox's own */
  readonly topicFor?: TopicRule
  /** @defaultValue the time of the call */
  readonly now?: Date
}

/** A conflict with another transaction changed nothing, and the decision is made anew: trying again is safe. */
const CONFLICT_RETRIES = 3

/** Places an order. Throws {@link OrderRefusal} with everything that is wrong with `command`. */
export async function placeOrder(db: Knex, command: PlaceOrder, options: CommandOptions = {}): Promise<Committed> {
  const decision = place(uuidv7(), command, options.now ?? new Date())
  return await inTransaction(
    db,
    async (trx) => {
      await insertOrder(trx, decision.order)
      return await append(trx, decision, options)
    },
    { retries: CONFLICT_RETRIES },
  )
}

/** Ships an order. Throws {@link OrderRefusal} if there is none or it does not wait for shipping. */
export async function shipOrder(db: Knex, id: string, options: CommandOptions = {}): Promise<Committed> {
  return await changeOrder(db, id, (order) => ship(order, options.now ?? new Date()), options)
}

/** Cancels an order. Throws {@link OrderRefusal} if there is none, it was shipped or cancelled, or `reason` is bad. */
export async function cancelOrder(
  db: Knex,
  id: string,
  reason: string,
  options: CommandOptions = {},
): Promise<Committed> {
  return await changeOrder(db, id, (order) => cancel(order, reason, options.now ?? new Date()), options)
}

async function changeOrder(
  db: Knex,
  id: string,
  decide: (order: Order) => Decision,
  options: CommandOptions,
): Promise<Committed> {
  if (!isOrderId(id)) throw unknownOrder()
  return await inTransaction(
    db,
    async (trx) => {
      const order = await lockOrder(trx, id)
      if (!order) throw unknownOrder()
      const decision = decide(order)
      await updateOrder(trx, decision.order)
      return await append(trx, decision, options)
    },
    { retries: CONFLICT_RETRIES },
  )
}

/** The order's row is locked, or not yet known to anyone, in every command: the outbox need not lock again. */
async function append(
  trx: Knex.Transaction,
  { order, event }: Decision,
  { topicFor }: CommandOptions,
): Promise<Committed> {
  const [envelope] = await appendToOutbox(trx, [event], { locked: true, ...(topicFor && { topicFor }) })
  if (!envelope) throw new Error('The outbox returned no envelope for an event')
  const { version, type, occurredAt } = event
  await insertOrderEvent(trx, { id: envelope.id, orderId: order.id, version, type, occurredAt })
  return { order, eventIds: [envelope.id] }
}

function unknownOrder(): OrderRefusal {
  return new OrderRefusal('NOT_FOUND', 'There is no order with this id')
}
