import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { cancel, type Order, place, ship } from '../../src/orders/order.ts'
import { OrderRefusal } from '../../src/orders/refusal.ts'
import { MAX_TOTAL_CENTS } from '../../src/orders/validation.ts'

const ID = '019a0000-0000-7000-8000-000000000001'
const NOW = new Date('2026-01-02T03:04:05.678Z')
const coffee = { sku: 'coffee', quantity: 2, unitPriceCents: 1250 }
const command = { customerId: 'customer-1', items: [coffee] }

function refusalOf(work: () => unknown): OrderRefusal {
  try {
    work()
  } catch (error) {
    if (error instanceof OrderRefusal) return error
    throw error
  }
  throw new Error('Nothing was refused')
}

test('placing states what was ordered, by whom and for how much', () => {
  const { order, event } = place(ID, command, NOW)

  expect(order).toMatchObject({ phase: 'placed', id: ID, version: 1, totalCents: 2500 })
  expect(event).toEqual({
    type: 'OrderPlaced',
    aggregate: { type: 'order', id: ID },
    version: 1,
    occurredAt: NOW,
    payload: {
      orderId: ID,
      customerId: 'customer-1',
      items: [coffee],
      totalCents: 2500,
      placedAt: '2026-01-02T03:04:05.678Z',
    },
  })
})

test('whatever is done to an order, versions rise by one and only what is waiting changes', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom('ship', 'cancel')), (wishes) => {
      let order: Order = place(ID, command, NOW).order
      for (const wish of wishes) {
        const decide = () => (wish === 'ship' ? ship(order, NOW) : cancel(order, 'changed my mind', NOW))
        if (order.phase !== 'placed') {
          expect(refusalOf(decide).code).toBe('ILLEGAL_TRANSITION')
          continue
        }
        const { order: after, event } = decide()
        expect(after.version).toBe(order.version + 1)
        expect(event.version).toBe(after.version)
        expect(event.aggregate).toEqual({ type: 'order', id: ID })
        order = after
      }
    }),
  )
})

test('any order within the limits is placed, with an exact total', () => {
  const item = fc.record({
    sku: fc.string({ minLength: 1, maxLength: 64 }).filter((text) => text.trim() !== '' && !text.includes('\0')),
    quantity: fc.integer({ min: 1, max: 1000 }),
    unitPriceCents: fc.integer({ min: 0, max: 20_000 }),
  })
  fc.assert(
    fc.property(fc.array(item, { minLength: 1, maxLength: 100 }), (items) => {
      const { order } = place(ID, { customerId: 'c', items }, NOW)
      const exact = items.reduce((sum, each) => sum + BigInt(each.quantity) * BigInt(each.unitPriceCents), 0n)
      expect(BigInt(order.totalCents)).toBe(exact)
    }),
  )
})

test('every mistake in an order is named with its place, all at once', () => {
  const refusal = refusalOf(() =>
    place(ID, { customerId: ' ', items: [coffee, { sku: '', quantity: 0, unitPriceCents: -1 }] }, NOW),
  )

  expect(refusal.code).toBe('BAD_INPUT')
  expect(refusal.problems).toEqual([
    { path: ['customerId'], message: 'customerId must not be empty' },
    { path: ['items', 1, 'sku'], message: 'items[1].sku must not be empty' },
    { path: ['items', 1, 'quantity'], message: 'items[1].quantity must be a whole number from 1 to 2147483647' },
    {
      path: ['items', 1, 'unitPriceCents'],
      message: 'items[1].unitPriceCents must be a whole number from 0 to 2147483647',
    },
  ])
})

test.each([
  ['no items', { items: [] }, 'items must have 1 to 100 entries; there are 0'],
  ['101 items', { items: Array(101).fill(coffee) }, 'items must have 1 to 100 entries; there are 101'],
  ['65 characters of customer', { customerId: 'x'.repeat(65) }, 'customerId must have at most 64 characters'],
  [
    'a zero character',
    { customerId: 'a\0b' },
    'customerId must be text: it holds a zero character or half a surrogate pair',
  ],
  [
    'half a surrogate pair',
    { customerId: 'a\ud800' },
    'customerId must be text: it holds a zero character or half a surrogate pair',
  ],
  [
    'a total beyond the API',
    { items: [{ ...coffee, quantity: 2, unitPriceCents: MAX_TOTAL_CENTS }] },
    'the total of items must be at most 2147483647 cents',
  ],
])('%s is refused', (_what, change, message) => {
  expect(refusalOf(() => place(ID, { ...command, ...change }, NOW)).message).toBe(message)
})

test('64 characters outside the basic plane are 64 characters', () => {
  expect(place(ID, { ...command, customerId: '😀'.repeat(64) }, NOW).order.customerId).toHaveLength(128)
})

test('a cancellation needs a reason', () => {
  const { order } = place(ID, command, NOW)

  expect(refusalOf(() => cancel(order, ' ', NOW)).problems).toEqual([
    { path: ['reason'], message: 'reason must not be empty' },
  ])
})
