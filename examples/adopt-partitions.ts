/**
 * Brings partitions that were added to a topic into use, with everything
 * running: to copy, until a command line comes with the package.
 *
 * With `npm start` running: `npx node --env-file .data/env
 * examples/adopt-partitions.ts order.events orders-summary`, then further
 * groups: every one that reads the topic and relies on the order within a key.
 *
 * In a project of your own its imports are `graphql-outbox` and `graphql-outbox/kafka`.
 */
import knex from 'knex'
import { adoptPartitions } from '../src/messaging/index.ts'
import { countLag, createKafkaPublisher } from '../src/messaging/kafka/index.ts'

const [topic, ...groups] = process.argv.slice(2)
const kafka = { brokers: (process.env.KAFKA_BROKERS ?? '127.0.0.1:9092').split(','), clientId: 'adopt-partitions' }
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })
const publisher = createKafkaPublisher(kafka)
const waitedFor = new Set<string>()
try {
  if (topic === undefined || groups.length === 0) throw new Error('TOPIC GROUP [GROUP …]')
  const { before, after } = await adoptPartitions({ db, publisher, topic, lag: () => lagOf(topic) })
  console.log(before === after ? `${topic} has ${after} partitions as before` : `${topic}: ${before}, now ${after}`)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
} finally {
  await publisher.close()
  await db.destroy()
}

/** Of all groups, while the topic rests; says once of each for which it waits, and a name that is misspelt is seen. */
async function lagOf(name: string): Promise<bigint> {
  let total = 0n
  for (const group of groups) {
    const lag = await countLag({ ...kafka, topic: name, groups: [group] })
    if (lag > 0n && !waitedFor.has(group)) console.error(`${name} rests until ${group} has caught up: ${lag} records`)
    if (lag > 0n) waitedFor.add(group)
    total += lag
  }
  return total
}
