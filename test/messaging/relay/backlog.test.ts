/** What a read of the relay costs: with a backlog that nobody has analyzed, and while an old transaction keeps dead rows alive. */
import { randomUUID } from 'node:crypto'
import { expect, jest, test } from '@jest/globals'
import type { Knex } from 'knex'
import { laneOf, murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { createPostgresSource } from '../../../src/messaging/relay/postgres-source.ts'
import { selectOutboxState } from '../../../src/messaging/telemetry/queries.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { type Cost, costOf, type Statement } from '../../support/statement-cost.ts'
import { createRelaySetting, idsOn, owns, type RelaySetting, TOPIC, typesOf, unpublished } from './setting.ts'

const isLong = process.env.TEST_LONG === '1'
if (isLong) jest.setTimeout(900_000)

/** Rows, and keys that they are spread over. */
const BACKLOG = isLong ? 1_000_000 : 20_000
const KEYS = 1_000

const QUIET_LANES = 4

/** Adds `count` rows to the lanes from `QUIET_LANES` on, in one statement and without statistics. */
async function pile(db: Knex, count: number): Promise<void> {
  const ids: string[] = []
  while (ids.length < KEYS) {
    const id = randomUUID()
    if (laneOf(murmur2(id)) >= QUIET_LANES) ids.push(id)
  }
  await db.raw(
    `insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, event_type, payload, occurred_at)
     select gen_random_uuid(), lane, hash, 'order', key, 'Step' || step, '{"n": 1}', clock_timestamp()
       from generate_series(1, cast(:steps as integer)) as step
      cross join unnest(cast(:ids as text[]), cast(:hashes as integer[]), cast(:lanes as smallint[])) as keys (key, hash, lane)`,
    {
      steps: Math.ceil(count / KEYS),
      ids,
      hashes: ids.map(murmur2),
      lanes: ids.map((id) => laneOf(murmur2(id))),
    },
  )
}

/** Resolves once `count` more events are on their topic, and marked. To count what is left, again and again, would cost more than the relay does. */
async function allOut({ broker, db }: RelaySetting, count: number): Promise<void> {
  await broker.receive(count)
  await eventually('all of it is marked', async () => (await unpublished(db)) === 0)
}

/** The plan of the relay's read of all lanes, carried out, and the pages that it looked at. */
async function readCost(db: Knex): Promise<Cost> {
  // A relay reads what it owns: here everything, for the length of a transaction that leaves nothing behind.
  const trx = await db.transaction()
  try {
    const owner = randomUUID()
    const leases: { lane: number; token: string }[] = await trx('lane_leases').update({ owner }, ['lane', 'token'])
    const statements: Statement[] = []
    trx.on('query', (query) => statements.push(query))
    await createPostgresSource({ db: trx, topicFor: () => TOPIC }).read(
      { owner, leases: leases.map(({ lane, token }) => ({ lane, token: BigInt(token) })) },
      { lanes: leases.map(({ lane }) => ({ lane, limit: 16 })), maxBytesPerLane: 100_000, inHand: [], exclusions: [] },
    )
    const [read] = statements
    if (!read) throw new Error('Nothing was read')
    return await costOf(trx, read)
  } finally {
    await trx.rollback()
  }
}

test('PC-27 a backlog that nobody has analyzed is read by the index, drains, and lets quiet lanes through', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  await db.raw('alter table outbox set (autovacuum_enabled = false)')
  const end = setting.broker.faults.outage()
  const relay = setting.start({ pollIntervalMs: 1_000 })
  await owns(relay, 64)
  await pile(db, BACKLOG)
  const { pages, nodes } = await readCost(db)

  // Half of the partitions go on, until the quiet lane was served in the middle of it.
  const holds = [4, 5, 6, 7].map((partition) => setting.broker.faults.hold({ topic: TOPIC, partition }))
  end()
  await setting.broker.receive(1)
  const quiet = keyOfLane(0)
  await setting.append(orderEvent('Quiet', quiet))
  await eventually('the quiet lane is served', () => typesOf(setting.broker, quiet).length === 1)
  const left = await unpublished(db)
  for (const { release } of holds) release()
  await allOut(setting, BACKLOG)

  const ofOutbox = nodes.filter((node) => node['Relation Name'] === 'outbox')
  expect(ofOutbox.map((node) => [node['Node Type'], node['Index Name']])).toEqual([['Index Scan', 'outbox_pending']])
  // A thousand rows: some pages of the index for each lane, and at worst one of the table for each row.
  expect(pages).toBeLessThan(64 * 8 + 1_024)
  expect(left).toBeGreaterThan(0)
  expect(new Set(idsOn(setting.broker)).size).toBe(BACKLOG + 1)
})

test('PC-43 an old transaction makes reads dearer by no more than what was published meanwhile, is told, and is got over', async () => {
  await using setting = await createRelaySetting()
  const { db } = setting
  const before = await readCost(db)
  const old = await setting.database.createPool().transaction(undefined, { isolationLevel: 'repeatable read' })
  await old.raw('select count(*) from outbox')

  const count = isLong ? BACKLOG : 10_000
  await pile(db, count)
  const relay = setting.start()
  await allOut(setting, count)
  await relay.stop()
  await db.raw('vacuum outbox')
  const during = await readCost(db)
  const { oldestTransactionSeconds } = await selectOutboxState(db)
  await old.rollback()
  await db.raw('vacuum outbox')
  const after = await readCost(db)

  // Each dead entry is looked up in the table, and no page beyond that.
  expect(during.pages).toBeLessThan(before.pages + 2 * count)
  expect(oldestTransactionSeconds).toBeGreaterThan(0.1)
  expect(after.pages).toBeLessThan(before.pages + 64 * 4)
})

function keyOfLane(lane: number): string {
  for (;;) {
    const id = randomUUID()
    if (laneOf(murmur2(id)) === lane) return id
  }
}
