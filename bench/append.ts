/**
 * `node bench/append.ts`: what an event costs the transaction that states it.
 *
 * Each contender changes one state row per transaction. In every round all of
 * them run, one after another and in turning order, on one Postgres of our own;
 * the ratios are medians of paired rounds, since the machine does other things.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command, InvalidArgumentError } from 'commander'
import knex, { type Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { startPostgres } from '../src/local/postgres.ts'
import { appendToOutbox } from '../src/messaging/outbox/append.ts'
import { inTransaction } from '../src/messaging/outbox/transaction.ts'
import { migrate } from '../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../src/messaging/schema/migration-files.ts'
import { ratioOf, spreadOf } from './statistics.ts'

type Contender = (db: Knex, id: number) => Promise<unknown>

const payload = { customerId: 'c-1', note: 'x'.repeat(400) }
const eventOf = (type: string, id: number) => ({ type: 'StateChanged', aggregate: { type, id: String(id) }, payload })
const changeState = (trx: Knex, id: number) => trx('state').where({ id }).increment('version')

/** The first is what the others are compared with. */
const contenders: Readonly<Record<string, Contender>> = {
  'state alone, knex.transaction': (db, id) => db.transaction((trx) => changeState(trx, id)),
  'state alone, inTransaction': (db, id) => inTransaction(db, async (trx) => await changeState(trx, id)),
  'state and event, textbook insert, knex.transaction': (db, id) =>
    db.transaction(async (trx) => {
      await changeState(trx, id)
      await trx('textbook_outbox').insert({
        id: uuidv7(),
        aggregate_type: 'text',
        aggregate_id: String(id),
        event_type: 'StateChanged',
        payload: JSON.stringify(payload),
      })
    }),
  'state and event, inTransaction, { locked: true }': (db, id) =>
    inTransaction(db, async (trx) => {
      await changeState(trx, id)
      await appendToOutbox(trx, [eventOf('row', id)], { locked: true })
    }),
  'state and event, inTransaction': (db, id) =>
    inTransaction(db, async (trx) => {
      await changeState(trx, id)
      await appendToOutbox(trx, [eventOf('advisory', id)])
    }),
}

const { rounds, transactions, connections } = new Command('append')
  .option('--rounds <count>', 'paired rounds', positive, 9)
  .option('--transactions <count>', 'transactions of a contender in a round', positive, 2_000)
  .option('--connections <count>', 'transactions at a time', positive, 4)
  .parse()
  .opts<{ rounds: number; transactions: number; connections: number }>()

const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-bench-'))
await using cleanup = new AsyncDisposableStack()
cleanup.defer(() => rm(dir, { recursive: true, force: true }))
const postgres = cleanup.use(await startPostgres({ dir: join(dir, 'postgres'), durable: false }))
const db = knex({ client: 'pg', connection: postgres.url(), pool: { min: connections, max: connections } })
cleanup.defer(() => db.destroy())
await migrate(db, messagingMigrations, 'messaging')
await db.raw(
  `create table state as
   select id, 0 as version from generate_series(1, 1000) as id;
   alter table state add primary key (id);
   create table textbook_outbox (
     id uuid primary key, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
     created_at timestamptz default now(), published_at timestamptz);
   create index on textbook_outbox (created_at) where published_at is null`,
)

const names = Object.keys(contenders)
const rates = new Map<string, number[]>(names.map((name) => [name, []]))
const cpu = new Map<string, number[]>(names.map((name) => [name, []]))
for (let round = -1; round < rounds; round += 1) {
  // The round before the first warms up.
  for (const name of [
    ...names.slice(Math.max(0, round) % names.length),
    ...names.slice(0, Math.max(0, round) % names.length),
  ]) {
    const measured = await measure(contenders[name] ?? changeState)
    if (round < 0) continue
    rates.get(name)?.push(measured.perSecond)
    cpu.get(name)?.push(measured.cpuMicros)
  }
  await db.raw('truncate outbox, textbook_outbox')
}

process.stdout.write(`${rounds} rounds of ${transactions} transactions, ${connections} at a time; medians\n`)
const base = rates.get(names[0] ?? '') ?? []
for (const name of names) {
  const ours = rates.get(name) ?? []
  const ratio = ratioOf(ours, base)
  const figures = [
    `${spreadOf(ours).median.toFixed(0).padStart(6)}/s`,
    `${ratio.median.toFixed(2)} (${ratio.lowerQuartile.toFixed(2)} to ${ratio.upperQuartile.toFixed(2)}) of the first`,
    `${spreadOf(cpu.get(name) ?? [])
      .median.toFixed(0)
      .padStart(4)} µs of client CPU`,
  ]
  process.stdout.write(`${name.padEnd(52)} ${figures.join('  ')}\n`)
}

async function measure(contender: Contender): Promise<{ perSecond: number; cpuMicros: number }> {
  let next = 0
  const startedAt = performance.now()
  const cpuBefore = process.cpuUsage()
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (let turn = next++; turn < transactions; turn = next++) await contender(db, (turn % 1_000) + 1)
    }),
  )
  const { user, system } = process.cpuUsage(cpuBefore)
  return {
    perSecond: (transactions * 1_000) / (performance.now() - startedAt),
    cpuMicros: (user + system) / transactions,
  }
}

function positive(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('A whole number from 1 is needed.')
  return value
}
