/**
 * The entry file of a relay thread: a pool and a publisher of its own, and the
 * lanes that the relay gives it.
 *
 * What a worker goes by, such as `topicFor`, `logger` and `settings`, is given to
 * `runRelayWorker` below. In the service:
 *
 *     startRelay({ db, threads: { entry: new URL('./relay-thread.ts', import.meta.url), count: 2, workerData: () => data } })
 *
 * In a project of your own its imports are `graphql-outbox` and `graphql-outbox/kafka`.
 */
import { parentPort, workerData } from 'node:worker_threads'
import knex from 'knex'
import { runRelayWorker, workerLine } from '../src/messaging/index.ts'
import { createKafkaPublisher } from '../src/messaging/kafka/index.ts'

/** What the service tells its threads: plain data, as it is cloned on the way. */
export interface RelayThreadData {
  readonly connection: string
  readonly kafka: { readonly brokers: readonly string[]; readonly clientId: string }
}

if (!parentPort) throw new Error('relay-thread.ts is the entry of a thread: give it to startRelay as threads.entry')
const { connection, kafka } = workerData as RelayThreadData

const db = knex({ client: 'pg', connection, pool: { min: 0, max: 3 } })
const publisher = createKafkaPublisher(kafka)
try {
  await runRelayWorker({ line: workerLine(parentPort), db, publisher })
} finally {
  await publisher.close()
  await db.destroy()
}
