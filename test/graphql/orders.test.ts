import { expect, test } from '@jest/globals'
import { addToSummaries } from '../../src/orders/summary-queries.ts'
import { createTestDatabase } from '../support/database.ts'
import { input, PLACE, startApi } from './api.ts'

test('an order can be placed, shipped and read with the way of its events', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const placed = await api.send(PLACE, { input })
  const { id } = placed.data.placeOrder.order
  const shipped = await api.send('mutation($id: ID!) { shipOrder(id: $id) { order { phase } } }', { id })
  const { data } = await api.send(
    `query($id: ID!) {
      order(id: $id) {
        id version phase customerId totalCents placedAt shippedAt cancelledAt cancelReason
        items { sku quantity unitPriceCents }
        events { id type version status publishedAt occurredAt }
      }
    }`,
    { id },
  )

  expect(shipped.data.shipOrder.order.phase).toBe('SHIPPED')
  const isoTime = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  expect(data.order).toEqual({
    ...input,
    id,
    version: 2,
    phase: 'SHIPPED',
    totalCents: 2500,
    placedAt: isoTime,
    shippedAt: isoTime,
    cancelledAt: null,
    cancelReason: null,
    events: [
      {
        id: placed.extensions?.outbox.eventIds[0],
        type: 'OrderPlaced',
        version: 1,
        status: 'PENDING',
        publishedAt: null,
        occurredAt: isoTime,
      },
      {
        id: shipped.extensions?.outbox.eventIds[0],
        type: 'OrderShipped',
        version: 2,
        status: 'PENDING',
        publishedAt: null,
        occurredAt: isoTime,
      },
    ],
  })
})

test('several mutations in one request run in turn, each in its own transaction', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  const { data } = await api.send(PLACE, { input })
  const { id } = data.placeOrder.order

  const answer = await api.send(
    `mutation($id: ID!, $input: PlaceOrderInput!) {
      first: shipOrder(id: $id) { order { version } }
      second: cancelOrder(id: $id, reason: "too late") { order { version } }
      third: placeOrder(input: $input) { order { version } }
    }`,
    { id, input },
  )

  expect(answer.data).toEqual({ first: { order: { version: 2 } }, second: null, third: { order: { version: 1 } } })
  expect(answer.errors).toEqual([
    expect.objectContaining({ path: ['second'], extensions: { code: 'ILLEGAL_TRANSITION' } }),
  ])
  expect(answer.extensions?.outbox.eventIds).toHaveLength(2)
  const { rows } = await database.db.raw('select id from outbox order by seq offset 1')
  expect(rows.map((row: { id: string }) => row.id)).toEqual(answer.extensions?.outbox.eventIds)
})

test('a query says nothing of the outbox', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const answer = await api.send(
    '{ order(id: "nonsense") { id } customerSummary(customerId: "nobody") { placedCount } }',
  )

  expect(answer).toEqual({ data: { order: null, customerSummary: null } })
})

test('a client walks through all orders by cursors, and the events of a page are one read', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  for (let count = 0; count < 5; count++) await api.send(PLACE, { input })
  const statements: string[] = []
  database.db.on('query', ({ sql }: { sql: string }) => statements.push(sql))

  const query = `query($after: String) {
    orders(first: 2, after: $after) {
      edges { cursor node { id events { type } } }
      nodes { id }
      pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    }
  }`
  const seen: string[] = []
  const pages: { hasNextPage: boolean; hasPreviousPage: boolean }[] = []
  for (let after: string | null = null; pages.length < 9; ) {
    const { data } = await api.send(query, { after })
    const { edges, nodes, pageInfo } = data.orders
    expect(nodes.map(({ id }: { id: string }) => id)).toEqual(
      edges.map(({ node }: { node: { id: string } }) => node.id),
    )
    expect(edges.every(({ node }: { node: { events: object[] } }) => node.events.length === 1)).toBe(true)
    seen.push(...nodes.map(({ id }: { id: string }) => id))
    pages.push({ hasNextPage: pageInfo.hasNextPage, hasPreviousPage: pageInfo.hasPreviousPage })
    after = pageInfo.endCursor
    if (!pageInfo.hasNextPage) break
  }

  expect(new Set(seen).size).toBe(5)
  expect(pages).toEqual([
    { hasNextPage: true, hasPreviousPage: false },
    { hasNextPage: true, hasPreviousPage: true },
    { hasNextPage: false, hasPreviousPage: true },
  ])
  expect(statements.filter((sql) => sql.includes('order_events'))).toHaveLength(3)
})

test('a summary carries sums beyond 32 bits', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  await database.db.transaction((trx) =>
    addToSummaries(trx, [
      {
        customerId: 'big',
        placedCount: 3,
        placedTotalCents: 6_000_000_000,
        shippedCount: 0,
        shippedTotalCents: 0,
        cancelledCount: 0,
        cancelledTotalCents: 0,
      },
    ]),
  )

  const { data } = await api.send(
    '{ customerSummary(customerId: "big") { placedCount placedTotalCents cancelledTotalCents } }',
  )

  expect(data.customerSummary).toEqual({ placedCount: 3, placedTotalCents: 6_000_000_000, cancelledTotalCents: 0 })
})

test('what cannot be ordered is answered with every mistake and its place', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const answer = await api.send(PLACE, {
    input: { customerId: '', items: [{ sku: 'x', quantity: 0, unitPriceCents: 1 }] },
  })

  expect(answer.data).toEqual({ placeOrder: null })
  expect(answer.errors?.[0]?.extensions).toEqual({
    code: 'BAD_USER_INPUT',
    problems: [
      { path: ['customerId'], message: 'customerId must not be empty' },
      { path: ['items', 0, 'quantity'], message: 'items[0].quantity must be a whole number from 1 to 2147483647' },
    ],
  })
  expect((await database.db.raw('select 1 from outbox')).rows).toEqual([])
})
