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
import { type Postgres, startPostgres } from '../src/local/postgres.ts'
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
  /**
   * Whether the contenders of a round drain at the same time, each from a database
   * of its own, so that whatever the machine does falls on all of them alike. For
   * CPU of processes of their own: rates are then those of sharing the machine.
   * Without, one after the other, by turns.
   * @defaultValue false
   */
  readonly together?: boolean
  /**
   * Milliseconds in which each contender is seen doing nothing before the backlog
   * comes. What that costs is then told apart from what the events cost.
   * @defaultValue 0, all of it is counted to the events
   */
  readonly idleMs?: number
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
  /** Microseconds of CPU for each second, events or not; 0 where that was not told apart. */
  readonly idleMicrosPerSecond: number
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
  await using scope = new AsyncDisposableStack()
  const groups = options.together ? [options.contenders] : options.contenders.map((contender) => [contender])
  options.progress(`making ${options.events} events`)
  const places: Place[] = []
  for (const index of Array(options.together ? options.contenders.length : 1).keys()) {
    places.push(await preparePlace(postgres, scope, { name: `bench_${index}`, shape: options }))
  }

  const drains: Drain[] = []
  for (let round = 0; round < options.rounds; round += 1) {
    // By turns also within a round: whoever goes first never stays first, and nobody always comes after the same one.
    const turned = rotate(groups, round >> 1)
    for (const group of round % 2 === 0 ? turned : turned.reverse()) {
      const heats = group.map((contender, index): Heat => {
        const topic = `bench-${round}-${contender.name.replaceAll(/[^a-z0-9]+/g, '-')}.order.events`
        const place = places[(index + round) % places.length] as Place
        return { contender, ground: { ...place, brokers: kafka.brokers, partitions: options.partitions, topic } }
      })
      for (const drain of await runHeats(heats, options)) {
        const rate = Math.round(drain.events / drain.seconds)
        const cpu = drain.cpuMicrosPerEvent.toFixed(1)
        options.progress(
          `round ${round + 1}/${options.rounds}  ${drain.contender}: ${rate} events/s, ${cpu} µs CPU/event ${drain.faults[0] ?? ''}`,
        )
        drains.push(drain)
      }
    }
  }
  return drains
}

/** A database with the events that outboxes are filled with. */
type Place = Pick<Ground, 'db' | 'databaseUrl'>

/** One contender at work on one ground. */
interface Heat {
  readonly contender: Contender
  readonly ground: Ground
}

async function preparePlace(
  postgres: Postgres,
  scope: AsyncDisposableStack,
  { name, shape }: { name: string; shape: BacklogShape },
): Promise<Place> {
  await using server = connect(postgres.url())
  await server.db.raw('create database ??', [name])
  const { db } = scope.use(connect(postgres.url(name)))
  await migrate(db, messagingMigrations, 'messaging')
  await prepareBacklog(db, shape)
  await createTextbookOutbox(db)
  return { db, databaseUrl: postgres.url(name) }
}

function connect(url: string) {
  const db = knex({ client: 'pg', connection: url, pool: { min: 1, max: 4 } })
  return { db, [Symbol.asyncDispose]: () => db.destroy() }
}

/** Lets all of `heats` drain at the same time. They keep in step: what is not counted of one disturbs none that is. */
async function runHeats(heats: readonly Heat[], options: DrainOptions): Promise<readonly Drain[]> {
  const { warmEvents } = options
  await using scope = new AsyncDisposableStack()
  const warm = await Promise.all(
    heats.map(async (heat) => ({ ...heat, running: await warmUp(heat, { warmEvents, scope }) })),
  )
  await sleep(options.settleMs ?? 0)
  const idle = await Promise.all(warm.map(({ running }) => idleMicros(running, options.idleMs ?? 0)))

  const filled = await Promise.all(
    warm.map(async (heat) => {
      const { table, share, sampledPercent } = heat.contender
      const events = Math.max(1, Math.round(options.events * share))
      await fill(heat.ground.db, table, { from: warmEvents, to: warmEvents + events, sampledPercent })
      return { ...heat, events, cpuBefore: await cpuMicrosOf(heat.running) }
    }),
  )
  const measured = await Promise.all(
    filled.map(async ({ contender, ground, running, events, cpuBefore }, index) => {
      const from = performance.now()
      running.wake?.()
      await drained(ground.db, contender.table, { last: warmEvents + events - 1, withinMs: WITHIN_MS })
      const seconds = (performance.now() - from) / 1_000
      if (options.untilStopped) await running.stop()
      const idleMicrosPerSecond = idle[index] ?? 0
      const cpuMicros = (await cpuMicrosOf(running)) - cpuBefore - seconds * idleMicrosPerSecond
      return { contender, ground, events, seconds, cpuMicrosPerEvent: cpuMicros / events, idleMicrosPerSecond }
    }),
  )
  const drains: Drain[] = []
  for (const { contender, ground, ...figures } of measured) {
    const faults = await faultsOf({ ...ground, table: contender.table })
    drains.push({ contender: contender.name, ...figures, faults })
  }
  return drains
}

/** Resolves once it has published the events that are not counted. It ends, and its topic with it, with `scope`. */
async function warmUp(
  { contender, ground }: Heat,
  { warmEvents, scope }: { warmEvents: number; scope: AsyncDisposableStack },
): Promise<Started> {
  const { db } = ground
  const { table, sampledPercent } = contender
  await emptyOutbox(db, table)
  scope.defer(() => deleteTopic(ground))
  await createTopic(ground)
  const running = await contender.start(ground)
  scope.defer(() => running.stop())
  await fill(db, table, { from: 0, to: warmEvents, sampledPercent })
  running.wake?.()
  await drained(db, table, { last: warmEvents - 1, withinMs: WITHIN_MS })
  return running
}

/** Microseconds of CPU in a second in which nothing is to be done, looked at for `ms`; 0 where nobody looks. */
async function idleMicros(running: Started, ms: number): Promise<number> {
  if (ms === 0) return 0
  const before = await cpuMicrosOf(running)
  const from = performance.now()
  await sleep(ms)
  return (((await cpuMicrosOf(running)) - before) / (performance.now() - from)) * 1_000
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
