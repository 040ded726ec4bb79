/** The gauges of a real outbox, through the real SDK, and what reading them costs. */
import { expect, jest, test } from '@jest/globals'
import { metrics } from '@opentelemetry/api'
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import type { Knex } from 'knex'
import pino from 'pino'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { recordOutboxState, startOutboxGauges } from '../../../src/messaging/telemetry/outbox-gauges.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { costOf, type Statement } from '../../support/statement-cost.ts'

class Reader extends MetricReader {
  override async onForceFlush() {}
  override async onShutdown() {}
}
const reader = new Reader()
metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))

const isLong = process.env.TEST_LONG === '1'
if (isLong) jest.setTimeout(1_800_000)

const TABLES = ['outbox', 'held_keys', 'dead_letters']

/** Rows of each kind, a few more than are counted. */
const COUNTED = 101_000

/** Rows that come to what is there already. */
const MORE: Rows = isLong
  ? { published: 5_000_000, pending: 1_000_000, held: 500_000, parked: 500_000, dead: 500_000, settled: 500_000 }
  : { published: 150_000, pending: 50_000, held: 50_000, parked: 50_000, dead: 20_000, settled: 50_000 }

interface Rows {
  readonly published: number
  readonly pending: number
  /** Keys in back-off. */
  readonly held: number
  readonly parked: number
  readonly dead: number
  /** Dead letters that are redriven. */
  readonly settled: number
}

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

test('PC-74 a reading costs as much with many times the rows, also where no vacuum has been', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  for (const table of TABLES) await db.raw('alter table ?? set (autovacuum_enabled = false)', [table])

  await add(db, { published: 50_000, pending: COUNTED, held: COUNTED, parked: COUNTED, dead: COUNTED, settled: 10_000 })
  const few = await readingCost(db)
  await add(db, MORE)
  const many = await readingCost(db)
  for (const table of TABLES) await db.raw('vacuum analyze ??', [table])
  const vacuumed = await readingCost(db)

  for (const { indexes } of [few, many, vacuumed]) {
    expect(indexes).toEqual([
      'outbox_pending',
      'outbox_pending',
      'held_keys_state',
      'held_keys_state',
      'dead_letters_open',
    ])
  }
  // As an index grows, its pages are not filled quite as before.
  expect(many.pages).toBeLessThan(few.pages + 500)
  // What is counted is looked up in the table once at most, and not at all after a vacuum.
  expect(many.pages).toBeLessThan(4 * COUNTED + 5_000)
  expect(vacuumed.pages).toBeLessThan(5_000)
  expect(await gauges()).toMatchObject({
    'outbox.pending.count': 100_001,
    'outbox.held.keys': 100_001,
    'outbox.parked.keys': 100_001,
    'outbox.dead_letter.count': 100_001,
  })
})

test('PC-74 a database that does not answer leaves the last values standing', async () => {
  await using database = await createTestDatabase()
  await inTransaction(database.db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'a')]))
  await recordOutboxState(database.db)
  const before = await gauges()
  const { promise: warned, resolve } = Promise.withResolvers<string>()
  const logger = pino({ base: null, timestamp: false }, { write: resolve })
  const broken = database.createPool()
  await broken.destroy()

  await using _gauges = startOutboxGauges({ db: broken, logger })

  expect(JSON.parse(await warned)).toMatchObject({
    msg: expect.stringContaining('last known'),
    err: { message: 'Unable to acquire a connection' },
  })
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

/** Adds rows, what is over before what is open, and lets the planner know of them; what it knows of a vacuum stays. */
async function add(db: Knex, { published, pending, held, parked, dead, settled }: Rows): Promise<void> {
  await db.raw(
    `insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, event_type, payload, occurred_at, published_at)
     select gen_random_uuid(), n % 64, n, 'order', n::text, 'OrderPlaced', '{}', now(),
            case when n <= :published then now() end
       from generate_series(1, :total::integer) as n`,
    { published, total: published + pending },
  )
  await db.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, state, next_attempt_at, reason)
     select 'relay', 'order.events', 'order', gen_random_uuid()::text,
            case when n <= :held then 'backoff' else 'parked' end, now(), 'MESSAGE_TOO_LARGE'
       from generate_series(1, :total::integer) as n`,
    { held, total: held + parked },
  )
  await db.raw(
    `insert into dead_letters (holder, topic, aggregate_type, aggregate_id, event_id, event_type, state, settled_at)
     select 'orders-summary', 'order.events', 'order', gen_random_uuid()::text, gen_random_uuid(), 'OrderPlaced',
            case when n <= :settled then 'redriven' else 'dead' end,
            case when n <= :settled then now() end
       from generate_series(1, :total::integer) as n`,
    { settled, total: settled + dead },
  )
  for (const table of TABLES) await db.raw('analyze ??', [table])
}

/** What the statement costs that a reading runs, and by which indexes it comes to each table; `undefined` is by none. */
async function readingCost(db: Knex): Promise<{ pages: number; indexes: readonly (string | undefined)[] }> {
  const statements: Statement[] = []
  const listen = (statement: Statement) => statements.push(statement)
  db.on('query', listen)
  await recordOutboxState(db)
  db.removeListener('query', listen)
  const read = statements.find(({ sql }) => sql.includes('from outbox'))
  if (!read) throw new Error('Nothing was read')
  const trx = await db.transaction()
  try {
    for (const { sql } of statements) if (sql.includes('set_config')) await trx.raw(sql)
    const { pages, nodes } = await costOf(trx, read)
    const ofTables = nodes.filter((node) => TABLES.includes(node['Relation Name'] ?? ''))
    return { pages, indexes: ofTables.map((node) => node['Index Name']) }
  } finally {
    await trx.rollback()
  }
}
