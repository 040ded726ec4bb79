/**
 * The outbox in a GraphQL service of one's own: a mutation, a relay, a consumer.
 *
 * Needs a Postgres and a Kafka: `DATABASE_URL` and `KAFKA_BROKERS`. With
 * `npm start` running, `npx node --env-file .data/env examples/quick-start.ts`;
 * `npx` takes the Node that `npm ci` installed, as an older one reads no TypeScript.
 *
 * In a project of your own its imports are `graphql-outbox` and `graphql-outbox/kafka`.
 */
import { ApolloServer } from '@apollo/server'
import knex from 'knex'
import {
  appendToOutbox,
  defineHandlers,
  inTransaction,
  messagingMigrations,
  migrate,
  startConsumer,
  startRelay,
} from '../src/messaging/index.ts'
import { createKafkaPublisher, createKafkaSubscriber } from '../src/messaging/kafka/index.ts'

const kafka = { brokers: (process.env.KAFKA_BROKERS ?? '127.0.0.1:9092').split(','), clientId: 'quick-start' }
const db = knex({ client: 'pg', connection: process.env.DATABASE_URL ?? 'postgres://postgres@127.0.0.1/postgres' })

await migrate(db, messagingMigrations, 'messaging')
await db.raw('create table if not exists users (id text primary key, name text not null)')
await db.raw('create table if not exists greetings (id bigserial primary key, line text not null)')

// 1. The mutation: state and event in one transaction. Both commit, or neither.
const server = new ApolloServer({
  // By its own handling of signals it would end the process while relay and consumer are still stopping.
  stopOnTerminationSignals: false,
  typeDefs: `type Query { users: Int } type Mutation { rename(id: ID!, name: String!): String! }`,
  resolvers: {
    Mutation: {
      rename: (_: unknown, { id, name }: { id: string; name: string }) =>
        inTransaction(db, async (trx) => {
          await trx('users').insert({ id, name }).onConflict('id').merge()
          await appendToOutbox(trx, [{ type: 'UserRenamed', aggregate: { type: 'user', id }, payload: { name } }])
          return name
        }),
    },
  },
})

// 2. The relay: publishes what is committed, a user's events in order, to the topic user.events.
const publisher = createKafkaPublisher(kafka)
const relay = startRelay({ db, publisher })

// 3. The consumer: each event's effect happens once, however often it is delivered.
const greeted = Promise.withResolvers<void>()
const consumer = startConsumer({
  name: 'greeter',
  topics: ['user.events'],
  db,
  subscriber: createKafkaSubscriber(kafka),
  handlers: defineHandlers<{ UserRenamed: { name: string } }>({
    UserRenamed: async (trx, event) => {
      await trx('greetings').insert({ line: `Hello, ${event.payload.name}` })
      greeted.resolve()
    },
  }),
})

// In a service, an HTTP integration sends the mutations; here one is enough.
const { body } = await server.executeOperation({ query: 'mutation { rename(id: "u1", name: "Ada") }' })
console.log('mutation:', JSON.stringify(body.kind === 'single' ? body.singleResult.data : body))

await greeted.promise
await consumer.stop()
console.log('effect:', (await db('greetings').orderBy('id', 'desc').first('line'))?.line)

await relay.stop()
await publisher.close()
await db.destroy()
