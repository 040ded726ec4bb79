import { expect, test } from '@jest/globals'
import { type Logger, silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { type Relay, startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import type { TestThreadData } from '../../support/relay/thread-data.ts'
import { owns, unpublished } from './setting.ts'

function startThreads(
  database: TestDatabase,
  { count, dieOn, logger = silentLogger }: { count: number; dieOn?: string; logger?: Logger },
): Relay {
  const data: TestThreadData = {
    databaseUrl: database.url,
    brokers: testBrokers(),
    topic: uniqueTopic('threads'),
    ...(dieOn === undefined ? {} : { dieOn }),
  }
  return startRelay({
    db: database.db,
    logger,
    pollIntervalMs: 200,
    threads: { entry: new URL('../../support/relay/thread.ts', import.meta.url), count, workerData: () => data },
  })
}

test('two threads share the lanes and publish to Kafka', async () => {
  await using database = await createTestDatabase()
  await using relay = startThreads(database, { count: 2 })
  await owns(relay, 64)
  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(
      trx,
      Array.from({ length: 500 }, () => orderEvent('OrderPlaced')),
    )
  })
  await eventually('all is published', async () => (await unpublished(database.db)) === 0)

  // The first thread up takes all lanes and gives half of them to the second.
  await eventually('each thread has its half', async () => {
    const owners = await database.db('lane_leases').select('owner').count('* as lanes').groupBy('owner')
    return owners.length === 2 && owners.every(({ owner, lanes }) => owner !== null && Number(lanes) === 32)
  })
  await relay.stop()
  expect(await database.db('relay_workers')).toEqual([])
})

test('a thread that dies is told of and restarted, and an event that kills it again and again is parked', async () => {
  await using database = await createTestDatabase()
  // What it says of itself at each death: a moment later another thread is up.
  const told: string[] = []
  const error = () => void told.push(...relay.status().problems)
  await using relay = startThreads(database, { count: 1, dieOn: 'Kills', logger: { ...silentLogger, error } })
  await owns(relay, 64)
  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('Kills', 'killer'), orderEvent('After', 'killer')])
  })

  await eventually('the key is parked', async () => (await database.db('held_keys')).length === 1, 120_000)
  expect(await database.db('held_keys').first('state', 'aggregate_id')).toEqual({
    state: 'parked',
    aggregate_id: 'killer',
  })
  expect(told).toContainEqual(expect.stringMatching(/^Relay worker 0 is down and will be restarted/))
  await inTransaction(database.db, async (trx) => {
    await appendToOutbox(trx, [orderEvent('OrderPlaced', 'other')])
  })
  await eventually('the others flow', async () => (await unpublished(database.db)) === 2)
})
