/** What every resolver of one request shares. */
import type { Knex } from 'knex'
import type { TopicRule } from '../messaging/index.ts'
import type { Committed } from '../orders/commands.ts'
import type { Order } from '../orders/order.ts'
import { type OrderEventView, selectOrderEvents } from '../orders/queries.ts'
import { batched } from './batched.ts'

export interface RequestContext {
  readonly db: Knex
  readonly topicFor: TopicRule
  /** The ids of the events that this request's mutations have committed, in order. */
  readonly eventIds: readonly string[]
  /** Notes what a mutation has committed and makes it the mutation's payload. */
  committed(result: Committed): { readonly order: Order }
  /** The events of one order. All that one answer needs are read at once. */
  eventsOf(orderId: string): Promise<readonly OrderEventView[]>
}

/** A context for one request. */
export function createContext({ db, topicFor }: Pick<RequestContext, 'db' | 'topicFor'>): RequestContext {
  const eventIds: string[] = []
  return {
    db,
    topicFor,
    eventIds,
    committed({ order, eventIds: ids }) {
      eventIds.push(...ids)
      return { order }
    },
    eventsOf: batched(async (orderIds) => {
      const byOrder = Map.groupBy(await selectOrderEvents(db, orderIds), ({ orderId }) => orderId)
      return orderIds.map((orderId) => byOrder.get(orderId) ?? [])
    }),
  }
}
