import type { Knex } from 'knex'
import { rawJson } from '../../../src/messaging/envelope.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import {
  createPostgresDirectory,
  createPostgresSource,
  createPostgresTopicRegistry,
} from '../../../src/messaging/relay/postgres-source.ts'
import { createTestDatabase } from '../../support/database.ts'
import { type SourceUnderTest, sourceContract, type TestEvent } from './source-contract.ts'

sourceContract('the outbox in Postgres', async (): Promise<SourceUnderTest> => {
  const database = await createTestDatabase()
  const { db } = database
  return {
    source: createPostgresSource({ db, topicFor: defaultTopicFor('') }),
    directory: createPostgresDirectory(db),
    topics: createPostgresTopicRegistry(db),
    appendOpen: async (events) => await appendOpen(db, events),
    expire: async (owner) => {
      await db('relay_workers')
        .where({ owner })
        .update({ expires_at: db.raw(`clock_timestamp() - interval '1 second'`) })
    },
    request: async ({ topic, aggregateType, aggregateId }, request) => {
      await db('held_keys')
        .where({ holder: 'relay', topic, aggregate_type: aggregateType, aggregate_id: aggregateId })
        .update({ request })
    },
    skipped: async () => {
      const rows = await db('dead_letters').where({ holder: 'relay', state: 'skipped' }).select('event_id')
      return rows.map(({ event_id }) => event_id)
    },
    [Symbol.asyncDispose]: async () => await database[Symbol.asyncDispose](),
  }
})

async function appendOpen(db: Knex, events: readonly TestEvent[]): Promise<{ commit(): Promise<void> }> {
  const appended = Promise.withResolvers<void>()
  const allowed = Promise.withResolvers<void>()
  const ended = db.transaction(async (trx) => {
    for (const { type, id, payload = '{}', topic } of events) {
      const [envelope] = await appendToOutbox(trx, [
        { type: 'OrderPlaced', aggregate: { type, id }, payload: rawJson(payload) },
      ])
      if (topic !== undefined) await trx('outbox').where({ id: envelope?.id }).update({ topic })
    }
    appended.resolve()
    await allowed.promise
  })
  await Promise.race([appended.promise, ended])
  return {
    commit: async () => {
      allowed.resolve()
      await ended
    },
  }
}
