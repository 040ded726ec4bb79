import { expect, test } from '@jest/globals'
import knex from 'knex'
import { createTestDatabase } from './database.ts'
import { testPostgresUrl } from './postgres.ts'

test('a database goes with its scope although a transaction was left open in it, as by a test that failed', async () => {
  const database = await createTestDatabase()
  const name = new URL(database.url).pathname.slice(1)
  const left = await database.db.transaction()
  await left.raw('lock table outbox in access exclusive mode')

  await database[Symbol.asyncDispose]()

  const server = knex({ client: 'pg', connection: testPostgresUrl(), pool: { min: 0, max: 1 } })
  await using _server = { [Symbol.asyncDispose]: () => server.destroy() }
  expect(await server('pg_database').where({ datname: name })).toEqual([])
})
