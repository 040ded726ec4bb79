/** What most tests of the relay share: a database, a broker in memory, appended events. */
import type { Knex } from 'knex'
import type { DomainEvent } from '../../../src/messaging/envelope.ts'
import type { Logger } from '../../../src/messaging/lifecycle/logger.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import type { RelaySettings } from '../../../src/messaging/relay/options.ts'
import { type Relay, startRelay } from '../../../src/messaging/relay/relay.ts'
import { WakeListener, type WakeListenerOptions } from '../../../src/messaging/relay/wake-listener.ts'
import type { TopicOptions } from '../../../src/messaging/relay/worker.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'

export const TOPIC = 'order.events'

/**
 * Quick pauses, so that a test sees in tenths of seconds what takes seconds in a
 * service. A lease is as long as there: one that ends because the machine is
 * busy doubles events, rightly, and no test waits for the end of one.
 */
export const quick = { pollIntervalMs: 100, leaseMs: 5_000 } as const satisfies RelaySettings

/** What a test may set of a relay. */
export type RelayChoice = RelaySettings &
  TopicOptions & { readonly db?: Knex; readonly publisher?: Publisher; readonly logger?: Logger }

export interface RelaySetting extends AsyncDisposable {
  readonly database: TestDatabase
  readonly db: Knex
  readonly broker: InMemoryBroker
  /** Another relay, as another process has one. It is stopped with the rest. */
  start(options?: RelayChoice): Relay
  append(...events: readonly DomainEvent[]): Promise<void>
  /** Resolves once nothing is pending or held. */
  drained(): Promise<void>
}

/** An empty outbox, a broker with the topic `order.events`, and no relay yet. */
export async function createRelaySetting(): Promise<RelaySetting> {
  const stack = new AsyncDisposableStack()
  const database = stack.use(await createTestDatabase())
  const { db } = database
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 8 } })
  const relays: Relay[] = []
  stack.defer(async () => {
    broker.faults.clear()
    await Promise.all(relays.map((relay) => relay.stop()))
  })
  return {
    database,
    db,
    broker,
    start(options = {}) {
      const relay = startRelay({ db, publisher: broker.createPublisher(), ...quick, ...options })
      relays.push(relay)
      return relay
    },
    append: async (...events) => {
      await inTransaction(db, async (trx) => {
        await appendToOutbox(trx, events)
      })
    },
    drained: async () => {
      await eventually('the outbox is drained', async () => (await unpublished(db)) === 0)
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

/** A listener that listens until its scope ends. */
export function startListener(options: WakeListenerOptions): Pick<WakeListener, 'listening'> & AsyncDisposable {
  const listener = new WakeListener(options)
  const ended = new AbortController()
  const running = listener.run(ended.signal)
  return {
    get listening() {
      return listener.listening
    },
    async [Symbol.asyncDispose]() {
      ended.abort()
      await running
    },
  }
}

/** How many events are not published yet, held ones included. */
export async function unpublished(db: Knex): Promise<number> {
  const row = await db('outbox').whereNull('published_at').count<{ count: string }[]>('* as count')
  return Number(row[0]?.count)
}

/** The ids of a topic's records, in offset order within each partition. */
export function idsOn(broker: InMemoryBroker, topic = TOPIC): readonly string[] {
  return broker.records(topic).map(({ headers }) => headers.event_id ?? '')
}

/** The event types of one key's records, in order. */
export function typesOf(broker: InMemoryBroker, key: string, topic = TOPIC): readonly string[] {
  return broker
    .records(topic)
    .filter((record) => record.key?.toString() === key)
    .map(({ headers }) => headers.event_type ?? '')
}

/** Resolves once this relay owns `count` lanes. */
export async function owns(relay: Relay, count: number): Promise<void> {
  await eventually(`the relay owns ${count} lanes`, () => relay.status().lanesOwned === count)
}
