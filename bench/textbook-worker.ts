/** The textbook relay in a thread of its own, as ours has one. Says `ready`, runs until told to stop, says `stopped`. */
import { setTimeout as sleep } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import knex from 'knex'
import { publishPage, textbookKafka } from './textbook.ts'

/** What the thread is told. */
export interface TextbookData {
  readonly databaseUrl: string
  readonly brokers: readonly string[]
  readonly topic: string
  /** Rows of a page. */
  readonly size: number
}

/** Milliseconds between two looks at an empty table. */
const POLL_MS = 20

const { databaseUrl, brokers, topic, size } = workerData as TextbookData
const port = parentPort
if (!port) throw new Error('This file is the entry of a worker thread')

const stop = new AbortController()
port.on('message', () => {
  stop.abort()
})
const db = knex({ client: 'pg', connection: databaseUrl, pool: { min: 1, max: 1 } })
const { producer } = textbookKafka(brokers)
await producer.connect()
port.postMessage('ready')
while (!stop.signal.aborted) {
  const count = await publishPage(db, producer, { topic, size })
  if (count === 0) await sleep(POLL_MS, undefined, { signal: stop.signal }).catch(() => {})
}
await producer.disconnect()
await db.destroy()
port.postMessage('stopped')
port.close()
