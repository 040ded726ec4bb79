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
import { listHeldKeys, requestResume, requestSkip } from '../src/messaging/index.ts'

const [command = 'list', id, holder, topic] = process.argv.slice(2)
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })
try {
  const held = await listHeldKeys(db, { limit: 10_000 })
  if (command === 'list') {
    for (const key of held) console.log(JSON.stringify(key))
  } else if (command === 'resume' || command === 'skip') {
    const meant = held.filter(
      (key) => key.aggregateId === id && (holder ?? key.holder) === key.holder && (topic ?? key.topic) === key.topic,
    )
    const [key] = meant
    if (key === undefined || meant.length > 1) {
      console.error(`${meant.length} held keys have this id; name one by its id, holder and topic`)
      process.exitCode = 1
    } else {
      console.log(await (command === 'resume' ? requestResume(db, key) : requestSkip(db, key)))
    }
  } else {
    console.error('list, resume ID [HOLDER [TOPIC]], or skip ID [HOLDER [TOPIC]]')
    process.exitCode = 1
  }
} finally {
  await db.destroy()
}
