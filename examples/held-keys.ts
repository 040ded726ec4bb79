/**
 * What waits for an operator, and how to settle it: to copy, until a command
 * line comes with the package.
 *
 * With `npm start` running: `npx node --env-file .data/env examples/held-keys.ts list`.
 * It prints keys that are held, then records on the consumers' topics that were
 * none of ours. A key is named by its aggregate's id: `resume ID`, `skip ID`,
 * and `retry ID` for one that is still tried again by itself; where several
 * holders or topics hold that id, `resume ID HOLDER TOPIC`. The relay or the
 * consumer that holds the key carries it out within a second or so. A foreign
 * record is named by its number: `show SEQ`, `dismiss SEQ`.
 *
 * In a project of your own its imports are `graphql-outbox` and `graphql-outbox/kafka`.
 */
import knex from 'knex'
import {
  defaultTopicFor,
  dismissForeignRecord,
  type ListedDeadLetter,
  type ListedHeldKey,
  listDeadLetters,
  listHeldKeys,
  readDeadLetter,
  requestResume,
  requestRetryNow,
  requestSkip,
} from '../src/messaging/index.ts'

const USAGE = 'list, resume|skip|retry ID [HOLDER [TOPIC]], or show|dismiss SEQ'
const LIMIT = 10_000
const PAGE = 1_000

// The rule by which your relay names topics, where it has one of its own.
const topicFor = defaultTopicFor(process.env.TOPIC_PREFIX ?? '')
const requests = { resume: requestResume, skip: requestSkip, retry: requestRetryNow }

const [command = 'list', id, holder, topic] = process.argv.slice(2)
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })
try {
  if (command === 'list') await list()
  else if (id === undefined) fail(USAGE)
  else if (command === 'resume' || command === 'skip' || command === 'retry') await request(command, id)
  else if (command === 'show' && isNumber(id)) await show(BigInt(id))
  else if (command === 'dismiss' && isNumber(id)) await dismiss(BigInt(id))
  else fail(USAGE)
} finally {
  await db.destroy()
}

async function list(): Promise<void> {
  const held = await listHeldKeys(db, { limit: LIMIT })
  for (const key of held) console.log(JSON.stringify(await describe(key)))
  if (held.length === 0) console.log('no held keys')
  for (let after = 0n; ; ) {
    const page = await listDeadLetters(db, { states: ['dead'], after, limit: PAGE })
    for (const letter of page) if (letter.eventId === null) console.log(JSON.stringify(foreign(letter)))
    const last = page.at(-1)
    if (last === undefined || page.length < PAGE) return
    after = last.seq
  }
}

async function request(wanted: keyof typeof requests, aggregateId: string): Promise<void> {
  const held = await listHeldKeys(db, { limit: LIMIT })
  const meant = held.filter(
    (key) =>
      key.aggregateId === aggregateId && (holder ?? key.holder) === key.holder && (topic ?? key.topic) === key.topic,
  )
  const [key] = meant
  if (key === undefined) fail('no held key has this id')
  else if (meant.length > 1) fail(`${meant.length} held keys have this id; name one by its id, holder and topic`)
  else await requestOne(wanted, key)
}

async function requestOne(wanted: keyof typeof requests, key: ListedHeldKey): Promise<void> {
  const outcome = await requests[wanted](db, key)
  if (outcome === 'requested') console.log(outcome)
  else if (outcome === 'not_held') fail('not_held: the key has gone on by itself meanwhile')
  else if (wanted === 'retry') fail('not_applicable: the key is parked; resume or skip it')
  else
    fail(
      `not_applicable: the key is in back-off and is tried again by itself, next at ${key.nextAttemptAt.toISOString()}; only a parked key can be ${{ resume: 'resumed', skip: 'skipped' }[wanted]}`,
    )
}

/** What the record is may be anything, customers' data too: it is printed only when asked for. */
async function show(seq: bigint): Promise<void> {
  const record = await readDeadLetter(db, seq)
  if (record === null) fail('no dead letter with a record has this number')
  else console.log(JSON.stringify({ key: text(record.key), value: text(record.value), headers: record.headers }))
}

async function dismiss(seq: bigint): Promise<void> {
  if (await dismissForeignRecord(db, seq)) console.log('dismissed')
  else fail('no foreign record with this number is open')
}

/** A parked key has no next attempt. Of a key of the relay's the event is looked up where it waits, in the outbox. */
async function describe({ nextAttemptAt, ...key }: ListedHeldKey): Promise<object> {
  const next = key.state === 'parked' ? {} : { nextAttemptAt }
  return key.holder === 'relay' ? { ...key, ...(await firstHeld(key)), ...next } : { ...key, ...next }
}

function foreign({ seq, holder: consumer, topic: where, partition, offset, reason, createdAt }: ListedDeadLetter) {
  return {
    foreignRecord: String(seq),
    holder: consumer,
    topic: where,
    partition,
    offset: String(offset),
    reason,
    createdAt,
  }
}

async function firstHeld(key: Omit<ListedHeldKey, 'nextAttemptAt'>): Promise<object> {
  const { rows } = await db.raw<{ rows: object[] }>(
    `select id as "eventId",
            event_type as "eventType"
       from outbox
      where held
        and published_at is null
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and coalesce(topic, :ruleTopic) = :topic
      order by seq
      limit 1`,
    {
      aggregateType: key.aggregateType,
      aggregateId: key.aggregateId,
      topic: key.topic,
      ruleTopic: topicFor(key.aggregateType),
    },
  )
  return rows[0] ?? {}
}

function isNumber(given: string): boolean {
  return /^\d{1,18}$/.test(given)
}

function text(bytes: Buffer | null): string | null {
  return bytes?.toString() ?? null
}

function fail(why: string): void {
  console.error(why)
  process.exitCode = 1
}
