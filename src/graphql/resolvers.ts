/** From the API's fields to the domain's commands and queries: one line each, no rules here. */
import { cancelOrder, placeOrder, shipOrder } from '../orders/commands.ts'
import type { Order } from '../orders/order.ts'
import { cursorOf, findOrder, findSummary, listOrders, type OrderPage } from '../orders/reads.ts'
import type { OrderPhase, Resolvers } from './generated.ts'
import { Cents, DateTime } from './scalars.ts'

export const resolvers: Resolvers = {
  Query: {
    order: (_, { id }, { db }) => findOrder(db, id),
    orders: async (_, { first, after }, { db }) => toConnection(await listOrders(db, { first, after: after ?? null })),
    customerSummary: (_, { customerId }, { db }) => findSummary(db, customerId),
  },
  Mutation: {
    placeOrder: async (_, { input }, { db, topicFor, committed }) =>
      committed(await placeOrder(db, input, { topicFor })),
    shipOrder: async (_, { id }, { db, topicFor, committed }) => committed(await shipOrder(db, id, { topicFor })),
    cancelOrder: async (_, { id, reason }, { db, topicFor, committed }) =>
      committed(await cancelOrder(db, id, reason, { topicFor })),
  },
  Order: {
    phase: ({ phase }) => phases[phase],
    shippedAt: (order) => (order.phase === 'shipped' ? order.shippedAt : null),
    cancelledAt: (order) => (order.phase === 'cancelled' ? order.cancelledAt : null),
    cancelReason: (order) => (order.phase === 'cancelled' ? order.reason : null),
    events: ({ id }, _, { eventsOf }) => eventsOf(id),
  },
  DateTime,
  Cents,
}

const phases: Readonly<Record<Order['phase'], OrderPhase>> = {
  placed: 'PLACED',
  shipped: 'SHIPPED',
  cancelled: 'CANCELLED',
}

function toConnection({ orders, hasNextPage, hasPreviousPage }: OrderPage) {
  const edges = orders.map((node) => ({ cursor: cursorOf(node), node }))
  const pageInfo = {
    hasNextPage,
    hasPreviousPage,
    startCursor: edges[0]?.cursor ?? null,
    endCursor: edges.at(-1)?.cursor ?? null,
  }
  return { edges, nodes: orders, pageInfo }
}
