/**
 * What waits for an operator, and how to settle it: to copy, until a command
 * line comes with the package.
 *
 * With `npm start` running: `npx node --env-file .data/env examples/held-keys.ts list`,
 * then `resume ID` or `skip ID`, with the aggregate's id; where several holders
 * or topics hold that id, `resume ID HOLDER TOPIC`. The relay or the consumer
 * that holds the key carries it out within a second or so.
 */
import knex from 'knex'
import {
  defaultTopicFor,
  type ListedHeldKey,
  listHeldKeys,
  requestResume,
  requestSkip,
} from '../src/messaging/index.ts'

// The rule by which your relay names topics, where it has one of its own.
const topicFor = defaultTopicFor(process.env.TOPIC_PREFIX ?? '')

const [command = 'list', id, holder, topic] = process.argv.slice(2)
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })
try {
  const held = await listHeldKeys(db, { limit: 10_000 })
  if (command === 'list') {
    for (const key of held) console.log(JSON.stringify(await describe(key)))
    if (held.length === 0) console.log('no held keys')
  } else if ((command === 'resume' || command === 'skip') && id !== undefined) {
    const meant = held.filter(
      (key) => key.aggregateId === id && (holder ?? key.holder) === key.holder && (topic ?? key.topic) === key.topic,
    )
    const [key] = meant
    if (key === undefined) fail('no held key has this id')
    else if (meant.length > 1) fail(`${meant.length} held keys have this id; name one by its id, holder and topic`)
    else await request(command, key)
  } else {
    fail('list, resume ID [HOLDER [TOPIC]], or skip ID [HOLDER [TOPIC]]')
  }
} finally {
  await db.destroy()
}

async function request(wanted: 'resume' | 'skip', key: ListedHeldKey): Promise<void> {
  const outcome = await (wanted === 'resume' ? requestResume(db, key) : requestSkip(db, key))
  const participle = { resume: 'resumed', skip: 'skipped' }[wanted]
  if (outcome === 'requested') console.log(outcome)
  else if (outcome === 'not_held') fail('not_held: the key has gone on by itself meanwhile')
  else
    fail(
      `not_applicable: the key is in back-off and is tried again by itself, next at ${key.nextAttemptAt.toISOString()}; only a parked key can be ${participle}`,
    )
}

/** A parked key has no next attempt. Of a key of the relay's the event is looked up where it waits, in the outbox. */
async function describe({ nextAttemptAt, ...key }: ListedHeldKey): Promise<object> {
  const next = key.state === 'parked' ? {} : { nextAttemptAt }
  return key.holder === 'relay' ? { ...key, ...(await firstHeld(key)), ...next } : { ...key, ...next }
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

function fail(why: string): void {
  console.error(why)
  process.exitCode = 1
}
