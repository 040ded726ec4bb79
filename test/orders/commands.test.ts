import { expect, test } from '@jest/globals'
import { cancelOrder, placeOrder, shipOrder } from '../../src/orders/commands.ts'
import { selectOrder, selectOrderEvents } from '../../src/orders/queries.ts'
import { cursorOf, listOrders } from '../../src/orders/reads.ts'
import { createTestDatabase } from '../support/database.ts'

const command = { customerId: 'customer-1', items: [{ sku: 'coffee', quantity: 2, unitPriceCents: 1250 }] }

test('an order and its event are stored together, under one id', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { db } = database

  const { order, eventIds } = await placeOrder(db, command)

  expect(await selectOrder(db, order.id)).toEqual(order)
  const { rows } = await db.raw('select id, aggregate_id, aggregate_version, event_type, payload from outbox')
  expect(rows).toEqual([
    expect.objectContaining({
      id: eventIds[0],
      aggregate_id: order.id,
      aggregate_version: '1',
      event_type: 'OrderPlaced',
    }),
  ])
  expect(rows[0].payload).toMatchObject({ orderId: order.id, customerId: 'customer-1', totalCents: 2500 })
})

test('an order that is refused leaves neither state nor event', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { db } = database
  const { order } = await placeOrder(db, command)
  await shipOrder(db, order.id)

  await expect(cancelOrder(db, order.id, 'too late')).rejects.toMatchObject({ code: 'ILLEGAL_TRANSITION' })

  expect(await selectOrder(db, order.id)).toMatchObject({ phase: 'shipped', version: 2 })
  const events = await selectOrderEvents(db, [order.id])
  expect(events.map(({ type, version, status }) => ({ type, version, status }))).toEqual([
    { type: 'OrderPlaced', version: 1, status: 'PENDING' },
    { type: 'OrderShipped', version: 2, status: 'PENDING' },
  ])
})

test('of many who ship one order at once, one succeeds and one event is stated', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { db } = database
  const { order } = await placeOrder(db, command)

  const outcomes = await Promise.allSettled(Array.from({ length: 12 }, () => shipOrder(db, order.id)))

  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
  expect(await selectOrderEvents(db, [order.id])).toHaveLength(2)
})

test.each(['no-such-order', '019a0000-0000-7000-8000-000000000001', "'; drop table orders; --"])(
  'an order that does not exist is not found: %s',
  async (id) => {
    await using database = await createTestDatabase({ orders: true })

    await expect(shipOrder(database.db, id)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  },
)

test('each event shows how far it has travelled', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { db } = database
  const { order } = await placeOrder(db, command)
  const { eventIds } = await shipOrder(db, order.id)
  const statuses = async () => (await selectOrderEvents(db, [order.id])).map(({ status }) => status)

  await db.raw('update outbox set published_at = now() where aggregate_version = 1')
  expect(await statuses()).toEqual(['PUBLISHED', 'PENDING'])

  await db.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, lane, state, next_attempt_at, reason)
     values ('relay', 'order.events', 'order', ?, 1, 'backoff', now(), 'MESSAGE_TOO_LARGE')`,
    [order.id],
  )
  expect(await statuses()).toEqual(['PUBLISHED', 'HELD'])

  await db.raw(`update held_keys set state = 'parked'`)
  expect(await statuses()).toEqual(['PUBLISHED', 'PARKED'])

  await db.raw('delete from held_keys')
  await db.raw('delete from outbox where id = ?', [eventIds[0] ?? ''])
  expect(await statuses()).toEqual(['PUBLISHED', 'PUBLISHED'])

  await db.raw(
    `insert into dead_letters (holder, state, event_id, topic, aggregate_type, aggregate_id, settled_at)
     values ('relay', 'skipped', ?, 'order.events', 'order', ?, now())`,
    [eventIds[0] ?? '', order.id],
  )
  expect(await statuses()).toEqual(['PUBLISHED', 'SKIPPED'])
})

test('pages list every order once, newest first, while more arrive', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { db } = database
  const placed: string[] = []
  for (let count = 0; count < 7; count++) placed.push((await placeOrder(db, command)).order.id)

  const seen: string[] = []
  let after: string | null = null
  for (;;) {
    const page = await listOrders(db, { first: 3, after })
    seen.push(...page.orders.map(({ id }) => id))
    await placeOrder(db, command)
    const last = page.orders.at(-1)
    if (!page.hasNextPage || !last) break
    after = cursorOf(last)
  }

  expect(seen).toEqual(placed.toReversed())
})

test.each([
  [{ first: 0, after: null }, 'first'],
  [{ first: 101, after: null }, 'first'],
  [{ first: 10, after: 'nonsense' }, 'after'],
])('a page that cannot be is refused: %j', async (page, field) => {
  await using database = await createTestDatabase({ orders: true })

  await expect(listOrders(database.db, page)).rejects.toMatchObject({
    code: 'BAD_INPUT',
    problems: [{ path: [field] }],
  })
})
