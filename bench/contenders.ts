/** Who drains the backlog: our relay, and textbook relays of several page sizes, each in one worker thread. */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Knex } from 'knex'
import { startOurRelay } from './our-relay.ts'
import type { TextbookData } from './textbook-worker.ts'

/** Where a contender works. */
export interface Ground {
  readonly db: Knex
  readonly databaseUrl: string
  readonly brokers: readonly string[]
  readonly topic: string
  readonly partitions: number
}

export interface Contender {
  readonly name: string
  /** The outbox that it drains. */
  readonly table: 'outbox' | 'textbook_outbox'
  /** What share of the events it is given; slow ones need not be waited for. */
  readonly share: number
  /** How many of a hundred events come from a request that is traced; without it, none has any trace context. */
  readonly sampledPercent?: number
  /** Resolves once it looks for events. */
  start(ground: Ground): Promise<Started>
}

/** A contender that works, in this process or in one of its own. */
export interface Started {
  stop(): Promise<void>
  /** Says that events were committed, to one that this process's own word does not reach. */
  wake?(): void
  /** Resolves once all that it has to tell of itself is told. */
  flush?(): Promise<void>
  /** Microseconds of CPU of a process of its own, up to its end. @defaultValue this process's */
  cpuMicros?(): Promise<number>
}

export const ours: Contender = { name: 'graphql-outbox', table: 'outbox', share: 1, start: startOurRelay }

/** Textbook relays by the names of `--peers`. */
export const peers: Readonly<Record<string, Contender>> = {
  'textbook-100': textbook('textbook, pages of 100', { size: 100, share: 1 }),
  'textbook-1000': textbook('textbook, pages of 1,000', { size: 1_000, share: 1 }),
  'textbook-single': textbook('textbook, one event at a time', { size: 1, share: 0.05 }),
}

function textbook(name: string, { size, share }: { size: number; share: number }): Contender {
  return { name, table: 'textbook_outbox', share, start: (ground) => startTextbook(ground, size) }
}

async function startTextbook({ databaseUrl, brokers, topic }: Ground, size: number) {
  const workerData: TextbookData = { databaseUrl, brokers, topic, size }
  const worker = new Worker(new URL('./textbook-worker.ts', import.meta.url), { workerData })
  await firstMessage(worker)
  return {
    async stop() {
      const exited = once(worker, 'exit')
      worker.postMessage('stop')
      await exited
    },
  }
}

/** Rejects when the worker fails before it says anything. */
async function firstMessage(worker: Worker): Promise<void> {
  await once(worker, 'message')
}
