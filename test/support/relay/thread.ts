/** A relay thread for tests: it can be told to die when it meets a certain event, and to die or to be busy with something else once a batch is acknowledged. */
import { parentPort, workerData } from 'node:worker_threads'
import knex from 'knex'
import type { Publisher } from '../../../src/messaging/index.ts'
import { runRelayWorker, silentLogger, workerLine } from '../../../src/messaging/index.ts'
import { createKafkaPublisher } from '../../../src/messaging/kafka/index.ts'
import { BLOCKED, type TestThreadData } from './thread-data.ts'

if (!parentPort) throw new Error('This file is the entry of a worker thread')
const { databaseUrl, brokers, topic, dieOn, dieOnceAcknowledged, blocked } = workerData as TestThreadData

const db = knex({ client: 'pg', connection: databaseUrl, pool: { min: 0, max: 3 } })
const kafka = createKafkaPublisher({ brokers, clientId: 'relay-thread' })
const publisher: Publisher = {
  ...kafka,
  publish: async (batch, options) => {
    if (dieOn !== undefined && batch.records.some(({ headers }) => headers.event_type === dieOn)) process.exit(7)
    const receipt = await kafka.publish(batch, options)
    if (dieOnceAcknowledged && Atomics.exchange(new Int32Array(dieOnceAcknowledged), 0, 1) === 0) process.exit(7)
    if (blocked && Atomics.compareExchange(blocked, BLOCKED.word, BLOCKED.next, BLOCKED.now) === BLOCKED.next) {
      // Busy, and not asleep: nothing of the thread's own goes on meanwhile.
      while (Atomics.load(blocked, BLOCKED.word) !== BLOCKED.over);
    }
    return receipt
  },
}
try {
  await runRelayWorker({
    line: workerLine(parentPort),
    db,
    publisher,
    topicFor: () => topic,
    logger: {
      ...silentLogger,
      warn: (_fields, message) => {
        if (blocked && message.startsWith('Lanes lost')) Atomics.add(blocked, BLOCKED.losses, 1)
      },
    },
    settings: { pollIntervalMs: 200, leaseMs: 1_000 },
  })
} finally {
  await publisher.close()
  await db.destroy()
  parentPort.close()
}
