/** The gauges of a real outbox, through the real SDK. */
import { expect, test } from '@jest/globals'
import { metrics } from '@opentelemetry/api'
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { recordOutboxState, startOutboxGauges } from '../../../src/messaging/telemetry/outbox-gauges.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

class Reader extends MetricReader {
  override async onForceFlush() {}
  override async onShutdown() {}
}
const reader = new Reader()
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))

test('shows what is pending, how old it is, what is held and what is parked', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await inTransaction(db, (trx) =>
    appendToOutbox(trx, [
      orderEvent('OrderPlaced', 'a'),
      orderEvent('OrderPlaced', 'b'),
      orderEvent('OrderPlaced', 'c'),
    ]),
  )
  await db.raw(`update outbox set created_at = clock_timestamp() - interval '1 hour' where aggregate_id = 'a'`)
  await db.raw(
    `update outbox set created_at = clock_timestamp() - interval '2 hours', held = true where aggregate_id = 'b'`,
  )
  await db.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, state, next_attempt_at, reason)
     values ('relay', 'order.events', 'order', 'b', 'parked', now(), 'MESSAGE_TOO_LARGE'),
            ('relay', 'order.events', 'order', 'd', 'backoff', now(), 'MESSAGE_TOO_LARGE'),
            ('relay', 'order.events', 'order', 'e', 'backoff', now(), 'MESSAGE_TOO_LARGE')`,
  )

  await recordOutboxState(db)

  const shown = await gauges()
  expect(shown).toMatchObject({
    'outbox.pending.count': 2,
    'outbox.held.keys': 2,
    'outbox.parked.keys': 1,
    'outbox.dead_letter.count': 0,
  })
  expect(shown['outbox.pending.oldest.age']).toBeGreaterThan(3_599)
  expect(shown['outbox.pending.oldest.age']).toBeLessThan(3_700)
})

test('shows zero for an outbox that is empty', async () => {
  await using database = await createTestDatabase()

  await recordOutboxState(database.db)

  expect(await gauges()).toMatchObject({ 'outbox.pending.count': 0, 'outbox.pending.oldest.age': 0 })
})

test('shows how long the oldest transaction has been open, its own reading aside', async () => {
  await using database = await createTestDatabase()
  await database.db.transaction(async (trx) => {
    await trx.raw('select 1')
    await recordOutboxState(database.db)
  })
  expect((await gauges())['outbox.oldest.transaction.age']).toBeGreaterThan(0)

  await recordOutboxState(database.db)
  expect((await gauges())['outbox.oldest.transaction.age']).toBe(0)
})

test('PC-74 reads the head of the index and counts no further than its bound, whatever is published', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await db.raw(
    `insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, event_type, payload, occurred_at, published_at)
     select gen_random_uuid(), n % 64, n, 'order', n::text, 'OrderPlaced', '{}', now(),
            case when n <= 50000 then now() end
       from generate_series(1, 152000) as n`,
  )
  await db.raw('vacuum analyze outbox')

  const { rows } = await db.raw<{ rows: { 'QUERY PLAN': string }[] }>(
    `explain (costs off)
     select created_at from outbox where lane = 5 and published_at is null and not held order by seq limit 1`,
  )
  await recordOutboxState(db)

  expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toContain('Index Scan using outbox_pending')
  expect((await gauges())['outbox.pending.count']).toBe(100_001)
})

test('PC-74 a database that does not answer leaves the last values standing', async () => {
  await using database = await createTestDatabase()
  await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'a')]))
  await recordOutboxState(database.db)
  const before = await gauges()
  const { promise: warned, resolve } = Promise.withResolvers<string>()
  const broken = database.createPool()
  await broken.destroy()

  await using _gauges = startOutboxGauges({
    db: broken,
    logger: { ...silentLogger, warn: (_fields, message) => resolve(message) },
  })

  expect(await warned).toContain('last known')
  expect(await gauges()).toMatchObject(before)
})

async function gauges(): Promise<Record<string, number>> {
  const { resourceMetrics } = await reader.collect()
  return Object.fromEntries(
    resourceMetrics.scopeMetrics
      .flatMap((scope) => scope.metrics)
      .map(({ descriptor, dataPoints }) => [descriptor.name, Number(dataPoints[0]?.value)]),
  )
}
