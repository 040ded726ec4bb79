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
   * In how many turns each contender drains its backlog. With more than one, those
   * of a round are all there at once, each with a database of its own, and take
   * their turns within seconds of each other: what the machine does meanwhile falls
   * on all of them. With one, each has the machine to itself.
   * @defaultValue 1
   */
  readonly turns?: number
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
  const { contenders, partitions, turns = 1 } = options
  await using folder = await temporaryFolder()
  options.progress('starting Postgres and Kafka')
  await using postgres = await startPostgres({ dir: join(folder.path, 'postgres') })
  await using kafka = await startKafka({ dir: join(folder.path, 'kafka') })
  await using scope = new AsyncDisposableStack()
  options.progress(`making ${options.events} events`)
  const groups = turns > 1 ? [contenders] : contenders.map((contender) => [contender])
  const places: Place[] = []
  for (const index of Array(turns > 1 ? contenders.length : 1).keys()) {
    places.push(await preparePlace(postgres, scope, { name: `bench_${index}`, shape: options }))
  }

  const drains: Drain[] = []
  for (let round = 0; round < options.rounds; round += 1) {
    for (const group of inTurn(groups, round)) {
      const heats = inTurn(group, round).map((contender, index): Heat => {
        const topic = `bench-${round}-${contender.name.replaceAll(/[^a-z0-9]+/g, '-')}.order.events`
        const place = places[index] as Place
        return { contender, ground: { ...place, brokers: kafka.brokers, partitions, topic } }
      })
      for (const drain of await runHeats(heats, { ...options, turns })) {
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

/** A heat that has begun, and what was counted of it. */
interface Runner extends Heat {
  readonly running: Started
  events: number
  seconds: number
  cpuMicros: number
}

async function preparePlace(
  postgres: Postgres,
  scope: AsyncDisposableStack,
  { name, shape }: { readonly name: string; readonly shape: BacklogShape },
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

/** Starts all of `heats` and lets them drain by turns. Only one drains at a time, and nothing else is done meanwhile. */
async function runHeats(
  heats: readonly Heat[],
  options: DrainOptions & { readonly turns: number },
): Promise<readonly Drain[]> {
  await using scope = new AsyncDisposableStack()
  const runners = await Promise.all(
    heats.map(
      async (heat): Promise<Runner> => ({
        ...heat,
        running: await warmUp(heat, { warmEvents: options.warmEvents, scope }),
        events: 0,
        seconds: 0,
        cpuMicros: 0,
      }),
    ),
  )
  for (let turn = 0; turn < options.turns; turn += 1) {
    for (const runner of inTurn(runners, turn)) await takeTurn(runner, options)
  }

  const drains: Drain[] = []
  for (const { contender, ground, events, seconds, cpuMicros } of runners) {
    const faults = await faultsOf({ ...ground, table: contender.table })
    drains.push({ contender: contender.name, events, seconds, cpuMicrosPerEvent: cpuMicros / events, faults })
  }
  return drains
}

/** Resolves once it has published the events that are not counted. It ends, and its topic with it, with `scope`. */
async function warmUp(
  { contender, ground }: Heat,
  { warmEvents, scope }: { readonly warmEvents: number; readonly scope: AsyncDisposableStack },
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
  // The first export loads and compiles what all others use.
  await running.flush?.()
  return running
}

/** Fills the outbox with the next part of the backlog and counts how it is drained, what follows from it included. */
async function takeTurn(
  runner: Runner,
  { warmEvents, events, turns }: DrainOptions & { readonly turns: number },
): Promise<void> {
  const { contender, ground, running } = runner
  const { table, share, sampledPercent } = contender
  // Never more in all than were made.
  const part = Math.max(1, Math.floor((events * share) / turns))
  const from = warmEvents + runner.events
  await fill(ground.db, table, { from, to: from + part, sampledPercent })

  const cpuBefore = await cpuMicrosOf(running)
  const begun = performance.now()
  running.wake?.()
  await drained(ground.db, table, { last: from + part - 1, withinMs: WITHIN_MS })
  runner.seconds += (performance.now() - begun) / 1_000
  await running.flush?.()
  runner.cpuMicros += (await cpuMicrosOf(running)) - cpuBefore
  runner.events += part
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

/** Whoever goes first never stays first, and nobody always comes after the same one. */
function inTurn<Item>(items: readonly Item[], turn: number): readonly Item[] {
  const at = (turn >> 1) % items.length
  const turned = [...items.slice(at), ...items.slice(0, at)]
  return turn % 2 === 0 ? turned : turned.reverse()
}

async function temporaryFolder() {
  const path = await mkdtemp(join(tmpdir(), 'outbox-bench-'))
  // Where we are root, Postgres runs under another account and has to pass through.
  await chmod(path, 0o711)
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}
