/** A consumer over a database of its own, with an effects table, fed by hand. */
import type { Knex } from 'knex'
import { type Consumer, startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers, type Handler, type HandlerSet } from '../../../src/messaging/consumer/handlers.ts'
import type { ConsumerOptions } from '../../../src/messaging/consumer/options.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { ScriptedSubscriber, TOPIC } from './scripted-subscriber.ts'

export interface Setting extends AsyncDisposable {
  readonly database: TestDatabase
  readonly db: Knex
  readonly subscriber: ScriptedSubscriber
  readonly consumer: Consumer
  /** Ids of events in the order in which their effects were written, which have no unique key. */
  effects(): Promise<readonly string[]>
}

/** Writes one row per call: a second effect would be seen. */
export const writeEffect: Handler = async (trx, event) => {
  await trx('effects').insert({ event_id: event.id, aggregate_id: event.aggregate.id })
}

export async function createEffects(db: Knex): Promise<void> {
  await db.raw(
    'create table effects (seq bigint generated always as identity, event_id uuid not null, aggregate_id text not null)',
  )
}

export async function effectsOf(db: Knex): Promise<readonly string[]> {
  return await db('effects').orderBy('seq').pluck('event_id')
}

/** Fast retries, so that a test waits for milliseconds where an operator waits for seconds. */
export const fast = { retryFirstMs: 1, retryMaxMs: 5 } as const

/** A consumer on a database of its own. */
export async function createSetting(
  handlers: HandlerSet | Handler = writeEffect,
  options: Partial<ConsumerOptions> = {},
): Promise<Setting> {
  await using failed = new AsyncDisposableStack()
  const database = failed.use(await createTestDatabase())
  await createEffects(database.db)
  const setting = failed.use(joinOn(database, handlers, options))
  const stack = failed.move()
  return { ...setting, [Symbol.asyncDispose]: () => stack.disposeAsync() }
}

/** Another instance of the consumer, on the same database with a pool of its own. */
export async function joinSetting(
  { database }: Setting,
  handlers: HandlerSet | Handler = writeEffect,
  options: Partial<ConsumerOptions> = {},
): Promise<Setting> {
  return joinOn(database, handlers, { db: database.createPool(), ...options })
}

/** An instance of the consumer on a database that has the effects table. */
export function joinOn(
  database: TestDatabase,
  handlers: HandlerSet | Handler,
  options: Partial<ConsumerOptions> = {},
): Setting {
  const { db } = database
  const subscriber = new ScriptedSubscriber()
  const consumer = startConsumer({
    name: 'summary',
    topics: [TOPIC],
    db,
    subscriber,
    handlers: typeof handlers === 'function' ? defineHandlers({ OrderPlaced: handlers }) : handlers,
    ...fast,
    ...options,
  })
  return {
    database,
    db,
    subscriber,
    consumer,
    effects: () => effectsOf(db),
    async [Symbol.asyncDispose]() {
      await consumer.stop()
    },
  }
}

export function idOf(record: { readonly headers: Readonly<Record<string, string>> }): string {
  return record.headers.event_id ?? ''
}
