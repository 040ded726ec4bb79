import { expect, test } from '@jest/globals'
import { changesOf } from '../../src/orders/summary.ts'
import { addToSummaries, selectSummary } from '../../src/orders/summary-queries.ts'
import { createTestDatabase } from '../support/database.ts'

type Received = Parameters<typeof changesOf>[0][number]

function received(type: Received['type'], customerId: unknown, totalCents: unknown): Received {
  return { type, id: 'event-1', payload: { customerId, totalCents } } as unknown as Received
}

test('events add up by customer and by what happened', () => {
  const changes = changesOf([
    received('OrderPlaced', 'a', 100),
    received('OrderPlaced', 'b', 5),
    received('OrderShipped', 'a', 100),
    received('OrderPlaced', 'a', 30),
    received('OrderCancelled', 'a', 30),
  ])

  expect(changes).toEqual([
    {
      customerId: 'a',
      placedCount: 2,
      placedTotalCents: 130,
      shippedCount: 1,
      shippedTotalCents: 100,
      cancelledCount: 1,
      cancelledTotalCents: 30,
    },
    {
      customerId: 'b',
      placedCount: 1,
      placedTotalCents: 5,
      shippedCount: 0,
      shippedTotalCents: 0,
      cancelledCount: 0,
      cancelledTotalCents: 0,
    },
  ])
})

test.each([
  [undefined, 1],
  ['', 1],
  ['a', 1.5],
  ['a', '1'],
])('a payload that cannot be counted is refused: %j, %j', (customerId, totalCents) => {
  expect(() => changesOf([received('OrderPlaced', customerId, totalCents)])).toThrow(
    'has no customerId or no whole totalCents',
  )
})

test('many batches with the same customers in different orders add up, and none deadlocks', async () => {
  await using database = await createTestDatabase({ orders: true })
  const { db } = database
  const customers = Array.from({ length: 40 }, (_, index) => `customer-${index}`)
  const batch = (names: readonly string[]) =>
    changesOf(names.map((name) => received('OrderPlaced', name, 3_000_000_000)))

  await Promise.all(
    Array.from({ length: 10 }, (_, round) =>
      db.transaction((trx) => addToSummaries(trx, batch(round % 2 ? customers : customers.toReversed()))),
    ),
  )

  expect(await selectSummary(db, 'customer-7')).toMatchObject({ placedCount: 10, placedTotalCents: 30_000_000_000 })
  expect(await selectSummary(db, 'nobody')).toBeNull()
})
