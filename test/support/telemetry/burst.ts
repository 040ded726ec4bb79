/** Many events at once. */
import knex from 'knex'
import { appendToOutbox, inTransaction } from '../../../src/messaging/index.ts'

/** Appends `count` orders in one transaction: a batch of work that becomes visible in one moment. Where this process traces, so do their spans end. */
export async function appendBurst(databaseUrl: string, count: number): Promise<void> {
  const db = knex({ client: 'pg', connection: databaseUrl })
  await using _pool = { [Symbol.asyncDispose]: () => db.destroy() }
  const events = Array.from({ length: count }, (_, index) => ({
    type: 'OrderPlaced',
    aggregate: { type: 'order', id: `order-${index}` },
    payload: { customerId: `customer-${index % 100}`, totalCents: 100 },
  }))
  await inTransaction(db, (trx) => appendToOutbox(trx, events, { locked: true }))
}
