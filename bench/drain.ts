/**
 * How fast a backlog is drained: our relay beside others, in one run, on one
 * broker and one Postgres, by turns, so that what the machine does meanwhile
 * falls on all of them.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Admin, Kafka, logLevel } from 'kafkajs'
import knex, { type Knex } from 'knex'
import { startKafka } from '../src/local/kafka.ts'
import { startPostgres } from '../src/local/postgres.ts'
import { publishCommitted } from '../src/messaging/outbox/committed.ts'
import { LANE_COUNT } from '../src/messaging/outbox/lane.ts'
import { migrate } from '../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../src/messaging/schema/migration-files.ts'
import {
  type BacklogShape,
  createTextbookOutbox,
  drained,
  emptyOutbox,
  type Filling,
  fillOutbox,
  prepareBacklog,
} from './backlog.ts'
import type { Contender, Ground, Started } from './contenders.ts'
import { faultsOf } from './gate.ts'

export interface DrainOptions extends BacklogShape {
  readonly rounds: number
  readonly partitions: number
  readonly contenders: readonly Contender[]
  /** Whether a contender's end counts as its work: what it does afterwards that it could have done before. @defaultValue false */
  readonly untilStopped?: boolean
  /** Milliseconds between the warm-up and what is counted, for what a contender does on a beat of its own. @defaultValue 0 */
  readonly settleMs?: number
  /** Told what is going on, a line each. */
  readonly progress: (line: string) => void
}

/** One contender in one round. */
export interface Drain {
  readonly contender: string
  readonly events: number
  readonly seconds: number
  /** Microseconds of CPU for each event: of this process, all threads, or of the contender's own. */
  readonly cpuMicrosPerEvent: number
  /** Why this is no figure; empty when it is one. */
  readonly faults: readonly string[]
}

/** Milliseconds after which a contender is given up. */
const WITHIN_MS = 300_000

/** Runs all rounds on a private Postgres and Kafka, removed afterwards. */
export async function benchDrain(options: DrainOptions): Promise<readonly Drain[]> {
  await using folder = await temporaryFolder()
  options.progress('starting Postgres and Kafka')
  await using postgres = await startPostgres({ dir: join(folder.path, 'postgres') })
  await using kafka = await startKafka({ dir: join(folder.path, 'kafka') })
  const db = knex({ client: 'pg', connection: postgres.url(), pool: { min: 1, max: 4 } })
  await using _pool = { [Symbol.asyncDispose]: () => db.destroy() }

  await migrate(db, messagingMigrations, 'messaging')
  options.progress(`making ${options.events} events`)
  await prepareBacklog(db, options)
  await createTextbookOutbox(db)
  const ground = { db, databaseUrl: postgres.url(), brokers: kafka.brokers, partitions: options.partitions }
  const drains: Drain[] = []
  for (let round = 0; round < options.rounds; round += 1) {
    // By turns also within a round: whoever goes first never stays first, and nobody always comes after the same one.
    const turned = rotate(options.contenders, round >> 1)
    const order = round % 2 === 0 ? turned : turned.reverse()
    for (const contender of order) {
      const topic = `bench-${round}-${contender.name.replaceAll(/[^a-z0-9]+/g, '-')}.order.events`
      const drain = await runRound(contender, { ...ground, topic }, options)
      const rate = Math.round(drain.events / drain.seconds)
      options.progress(
        `round ${round + 1}/${options.rounds}  ${contender.name}: ${rate} events/s ${drain.faults[0] ?? ''}`,
      )
      drains.push(drain)
    }
  }
  return drains
}

async function runRound(contender: Contender, ground: Ground, options: DrainOptions): Promise<Drain> {
  const { db } = ground
  const events = Math.max(1, Math.round(options.events * contender.share))
  const { table, sampledPercent } = contender
  const { warmEvents } = options
  await emptyOutbox(db, table)
  await createTopic(ground)
  const running = await contender.start(ground)
  try {
    await fill(db, table, { from: 0, to: warmEvents, sampledPercent })
    running.wake?.()
    await drained(db, table, { last: warmEvents - 1, withinMs: WITHIN_MS })
    await sleep(options.settleMs ?? 0)

    const to = warmEvents + events
    await fill(db, table, { from: warmEvents, to, sampledPercent })
    const cpuBefore = await cpuMicrosOf(running)
    const from = performance.now()
    running.wake?.()
    await drained(db, table, { last: to - 1, withinMs: WITHIN_MS })
    const seconds = (performance.now() - from) / 1_000
    if (options.untilStopped) await running.stop()
    const cpuMicros = (await cpuMicrosOf(running)) - cpuBefore
    const faults = await faultsOf({ ...ground, table })
    return { contender: contender.name, events, seconds, cpuMicrosPerEvent: cpuMicros / events, faults }
  } finally {
    await running.stop()
    await deleteTopic(ground)
  }
}

async function cpuMicrosOf(running: Started): Promise<number> {
  if (running.cpuMicros) return await running.cpuMicros()
  const { user, system } = process.cpuUsage()
  return user + system
}

/** Commits, then says so as `inTransaction` would, so that nobody has to wait for a poll. */
async function fill(db: Knex, table: string, filling: Filling): Promise<void> {
  await fillOutbox(db, table, filling)
  publishCommitted(Array.from({ length: LANE_COUNT }, (_, lane) => lane))
}

async function createTopic({ brokers, topic, partitions }: Ground): Promise<void> {
  await withAdmin(brokers, async (admin) => {
    // kafkajs's own waiting for leaders fails now and then on a broker of today.
    await admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }],
      waitForLeaders: false,
    })
    while (!(await hasLeaders(admin, topic))) await sleep(50)
  })
}

async function hasLeaders(admin: Admin, topic: string): Promise<boolean> {
  return await admin.fetchTopicMetadata({ topics: [topic] }).then(
    ({ topics }) => topics[0]?.partitions.every(({ leader }) => leader >= 0) ?? false,
    () => false,
  )
}

async function deleteTopic({ brokers, topic }: Ground): Promise<void> {
  await withAdmin(brokers, (admin) => admin.deleteTopics({ topics: [topic] }))
}

async function withAdmin(brokers: readonly string[], work: (admin: Admin) => Promise<void>) {
  const admin = new Kafka({ clientId: 'bench', brokers: [...brokers], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  try {
    await work(admin)
  } finally {
    await admin.disconnect()
  }
}

function rotate<Item>(items: readonly Item[], by: number): Item[] {
  const at = by % items.length
  return [...items.slice(at), ...items.slice(0, at)]
}

async function temporaryFolder() {
  const path = await mkdtemp(join(tmpdir(), 'outbox-bench-'))
  // Where we are root, Postgres runs under another account and has to pass through.
  await chmod(path, 0o711)
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}
