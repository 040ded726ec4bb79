/** A relay that dies between the broker's acknowledgement and the mark: its events go again, and nobody can tell the copies apart. */
import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import type { TestThreadData } from '../../support/relay/thread-data.ts'
import { createWitness } from '../kafka/witness.ts'
import { owns, unpublished } from './setting.ts'

test('PC-25 a copy after a crash has id, key, partition, value and headers of the first, byte for byte', async () => {
  await using database = await createTestDatabase()
  const topic = uniqueTopic('crash')
  const data: TestThreadData = {
    databaseUrl: database.url,
    brokers: testBrokers(),
    topic,
    dieOnceAcknowledged: new SharedArrayBuffer(4),
  }
  await using relay = startRelay({
    db: database.db,
    pollIntervalMs: 200,
    // Longer than any machine is busy: a lease that ends by itself would make more copies.
    leaseMs: 10_000,
    threads: { entry: new URL('../../support/relay/thread.ts', import.meta.url), count: 1, workerData: () => data },
  })
  await owns(relay, 64)
  const payload = { text: 'Zoë 😀', number: 1.5, nested: [{ b: 1, a: null }] }
  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [
      orderEvent('OrderPlaced', 'schlüssel', { version: 1, payload, headers: { tenant: 'blau' } }),
      orderEvent('OrderShipped', 'schlüssel', { version: 2, payload: null }),
    ])
  })
  await eventually('all is published', async () => (await unpublished(database.db)) === 0)

  await using witness = await createWitness(testBrokers())
  const partitions = await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map((partition) => witness.read({ topic, partition })))
  const [records = [], ...others] = partitions.filter((found) => found.length > 0)
  expect(others).toEqual([])
  const bytes = records.map(({ key, value, headers: { traceparent: _, ...headers } }) => ({
    key,
    value: value?.toString('hex') ?? null,
    headers,
  }))
  expect(bytes).toHaveLength(4)
  expect(bytes.slice(2)).toEqual(bytes.slice(0, 2))
})
