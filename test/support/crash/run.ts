/** One crash: a child that runs to a point and dies, one that finishes its work, and the judgement of what they left. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Kafka, logLevel } from 'kafkajs'
import type { Knex } from 'knex'
import {
  checkHistory,
  installShadow,
  noEvidence,
  readHistory,
  readShadow,
  recordHistory,
  shadowsFromTheStart,
  type Verdict,
} from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../database.ts'
import { readTopics } from '../history/read-topics.ts'
import { testBrokers, uniqueTopic } from '../kafka.ts'
import type { CrashTarget } from './points.ts'
import { type ChildSpec, groupOf, PARTITIONS, topicOf } from './scenario.ts'

const CHILD = fileURLToPath(new URL('./child.ts', import.meta.url))
/** Compiled code for the next child: a start takes half the time. */
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/crash-points', import.meta.url))
/** Milliseconds for a child, one that waits for a dead member's session included. */
const CHILD_MS = 240_000

export interface CrashRun {
  /** Whether the child died at its target. It passes where the target does not come. */
  readonly crashed: boolean
  /** What the first child met, in order. */
  readonly points: readonly string[]
  readonly verdict: Verdict
}

/** Runs the scenario on a database and topics of its own, killed once at `crash`, and judges it. */
export async function runWithCrash(crash: CrashTarget | null): Promise<CrashRun> {
  const dir = await mkdtemp(join(tmpdir(), 'crash-point-'))
  try {
    await using database = await createTestDatabase({ orders: true })
    await prepare(database.db)
    const spec: ChildSpec = {
      databaseUrl: database.url,
      brokers: testBrokers(),
      prefix: `${uniqueTopic('crash')}.`,
      pointsFile: join(dir, 'points'),
      historyFile: join(dir, 'client.jsonl'),
      membersFile: join(dir, 'members'),
      crash,
    }
    const nemesisFile = join(dir, 'nemesis.jsonl')
    const crashed = await runChild(spec, crash && nemesisFile)
    const points = readLines(spec.pointsFile)
    if (crashed) await runChild({ ...spec, pointsFile: join(dir, 'points-after'), crash: null }, null)
    const files = [spec.historyFile, nemesisFile].filter((file) => existsSync(file))
    return { crashed, points, verdict: await judge(database.db, spec, { files, crashed }) }
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}

async function prepare(db: Knex): Promise<void> {
  await installShadow(db)
  await db.raw(
    `create table effects (event_id uuid not null);
     create table refusals (cause text not null);
     insert into refusals values ('not mended yet')`,
  )
}

/** Resolves to whether the child killed itself; rejects when it ended in any other way but well. */
async function runChild(spec: ChildSpec, nemesisFile: string | null): Promise<boolean> {
  using nemesis = nemesisFile === null ? null : recordHistory(nemesisFile)
  const killing = nemesis?.invoke('nemesis', `kill at ${spec.crash?.point}`)
  const child = spawn(process.execPath, ['--disable-warning=TimeoutNegativeWarning', CHILD, JSON.stringify(spec)], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: CACHE },
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (said += String(chunk)))
  const timer = setTimeout(() => child.kill('SIGTERM'), CHILD_MS)
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
  clearTimeout(timer)
  if (signal === 'SIGKILL' && spec.crash !== null) {
    killing?.ok()
    return true
  }
  if (code === 0) return false
  const last = readLines(spec.pointsFile).slice(-5).join('; ')
  throw new Error(`The child ended with ${code ?? signal} after ${last}: ${said.slice(-2_000)}`)
}

async function judge(
  db: Knex,
  spec: ChildSpec,
  { files, crashed }: { files: readonly string[]; crashed: boolean },
): Promise<Verdict> {
  const topic = topicOf(spec)
  const deadLetterTopic = `${topic}.${groupOf(spec)}.dlq`
  const committed = await readShadow(db, { topicFor: () => topic, operationOf })
  const records = await readTopics({ brokers: spec.brokers, topics: [topic, deadLetterTopic] })
  const orders = await db('orders').select<{ id: string; version: number }[]>('id', 'version')
  return checkHistory({
    ...noEvidence,
    history: await readHistory(files),
    // A dead letter's own event follows no version of its aggregate.
    committed: committed.map((event) =>
      event.topic === deadLetterTopic ? { ...event, aggregateType: 'dead letter', operation: null } : event,
    ),
    fromTheStart: await shadowsFromTheStart(db),
    records,
    topics: [topic, deadLetterTopic].map((name) => ({ topic: name, partitionCounts: [PARTITIONS] })),
    consumers: [
      {
        consumer: groupOf(spec),
        topics: [topic],
        processed: await db('processed_events').pluck('event_id'),
        effects: await db('effects').pluck('event_id'),
        deadLetters: await db('dead_letters').whereIn('state', ['dead', 'waiting']).pluck('event_id'),
        ignoredTypes: [],
        committedOffsets: await readOffsets(spec),
      },
    ],
    sums: [
      {
        name: 'the sum of all versions',
        expected: committed.filter(({ topic: name }) => name === topic).length,
        actual: orders.reduce((sum, { version }) => sum + version, 0),
      },
    ],
    states: orders.map(({ id, version }) => ({ aggregateType: 'order', aggregateId: id, version })),
    final: await readFinal(db),
    // The kill: one outcome that nobody knows, one takeover, and both of the same send.
    disturbances: crashed ? 1 : 0,
    faultsExpected: crashed,
  })
}

/** The client writes its operation's id where the payload has room for it. */
function operationOf({ type, payload }: { readonly type: string; readonly payload: string | null }): string | null {
  const { items, reason } = JSON.parse(payload ?? '{}') as { items?: { sku: string }[]; reason?: string }
  return (type === 'OrderPlaced' ? items?.[0]?.sku : reason) ?? null
}

async function readOffsets(spec: ChildSpec) {
  const admin = new Kafka({ clientId: 'evidence', brokers: [...spec.brokers], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  try {
    const topics = await admin.fetchOffsets({ groupId: groupOf(spec), topics: [topicOf(spec)] })
    return topics.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, offset }) => ({ topic, partition, offset: BigInt(offset) })),
    )
  } finally {
    await admin.disconnect()
  }
}

async function readFinal(db: Knex) {
  const { rows } = await db.raw<{ rows: { pending: number }[] }>(
    'select count(*)::integer as pending from outbox where published_at is null',
  )
  const lanes = await db('lane_leases').select<{ lane: number; owner: string | null }[]>('lane', 'owner')
  return { pending: rows[0]?.pending ?? -1, lanes, liveOwners: null }
}

function readLines(path: string): readonly string[] {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : []
}
