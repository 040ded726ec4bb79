/** The example of a relay thread's entry file, used as its reader would use it. */
import { expect, test } from '@jest/globals'
import type { RelayThreadData } from '../../examples/relay-thread.ts'
import { appendToOutbox, inTransaction, runRelayWorker, startRelay } from '../../src/messaging/index.ts'
import { createKafkaPublisher } from '../../src/messaging/kafka/index.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../support/database.ts'
import { testBrokers, uniqueTopic } from '../support/kafka.ts'

test('two threads of the example share the lanes, publish, and end by themselves', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  const data: RelayThreadData = {
    connection: database.url,
    kafka: { brokers: testBrokers(), clientId: 'relay-thread-example' },
  }
  await using relay = startRelay({
    db,
    threads: { entry: new URL('../../examples/relay-thread.ts', import.meta.url), count: 2, workerData: () => data },
  })

  // A type of its own, as the broker is every test's.
  const type = uniqueTopic('thread').replaceAll('.', '-')
  await inTransaction(db, (trx) =>
    appendToOutbox(
      trx,
      Array.from({ length: 20 }, (_, n) => ({ type: 'Happened', aggregate: { type, id: String(n) }, payload: { n } })),
    ),
  )

  await eventually('all is published', async () => (await db('outbox').whereNull('published_at')).length === 0, 120_000)
  await eventually(
    'each thread has lanes',
    async () => (await db('lane_leases').distinct('owner').whereNotNull('owner')).length === 2,
    60_000,
  )
  await relay.stop()
  // Only a thread that has ended by itself has given its lanes back.
  expect(await db('lane_leases').whereNotNull('owner')).toEqual([])
})

test('a worker without its line says what it needs', async () => {
  await using database = await createTestDatabase()
  const publisher = createKafkaPublisher({ brokers: testBrokers(), clientId: 'no-line' })
  await using _closing = { [Symbol.asyncDispose]: () => publisher.close() }
  const options = { db: database.db, publisher } as unknown as Parameters<typeof runRelayWorker>[0]

  await expect(runRelayWorker(options)).rejects.toMatchObject({
    code: 'MESSAGING_INVALID_OPTION',
    message: "Option line must be workerLine(parentPort), in a thread's entry file; it is undefined",
  })
})
