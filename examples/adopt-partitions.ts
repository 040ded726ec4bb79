/**
 * Brings partitions that were added to a topic into use, with everything
 * running: to copy, until a command line comes with the package.
 *
 * With `npm start` running: `npx node --env-file .data/env
 * examples/adopt-partitions.ts order.events orders-summary`, then further
 * groups: every one that reads the topic and relies on the order within a key.
 */
import knex from 'knex'
import { adoptPartitions } from '../src/messaging/index.ts'
import { countLag, createKafkaPublisher } from '../src/messaging/kafka/index.ts'

const [topic, ...groups] = process.argv.slice(2)
const kafka = { brokers: (process.env.KAFKA_BROKERS ?? '127.0.0.1:9092').split(','), clientId: 'adopt-partitions' }
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })
const publisher = createKafkaPublisher(kafka)
try {
  if (topic === undefined || groups.length === 0) throw new Error('TOPIC GROUP [GROUP …]')
  const lag = () => countLag({ ...kafka, topic, groups })
  const { before, after } = await adoptPartitions({ db, publisher, topic, lag })
  console.log(before === after ? `${topic} has ${after} partitions as before` : `${topic}: ${before}, now ${after}`)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
} finally {
  await publisher.close()
  await db.destroy()
}
