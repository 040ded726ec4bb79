import { expect, test } from '@jest/globals'
import { GraphQLError } from 'graphql'
import { createErrorFormatter } from '../../src/graphql/errors.ts'
import { CommitUnknownError } from '../../src/messaging/errors.ts'
import { silentLogger } from '../../src/messaging/index.ts'
import { createTestDatabase } from '../support/database.ts'
import { input, PLACE, startApi } from './api.ts'

/** Must appear nowhere but where the client itself has put it. */
const CANARY = 'canary-4711'

test('PC-65: a database error reaches the client as an incident and nothing more', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)
  await database.db.raw(`create function refuse() returns trigger language plpgsql as
    $$ begin raise exception 'no % today', new.customer_id; end $$`)
  await database.db.raw('create trigger refuse before insert on orders for each row execute function refuse()')

  const answer = await api.send(PLACE, { input: { ...input, customerId: CANARY } })

  const incidentId = answer.errors?.[0]?.extensions.incidentId
  expect(answer).toEqual({
    data: { placeOrder: null },
    errors: [
      {
        message: `Something went wrong on our side; support can find it under ${incidentId}`,
        locations: expect.anything(),
        path: ['placeOrder'],
        extensions: { code: 'INTERNAL', incidentId: expect.stringMatching(/^[0-9a-f-]{36}$/) },
      },
    ],
    extensions: { outbox: { eventIds: [], traceId: null } },
  })
  expect(api.log).toEqual([
    expect.objectContaining({ level: 'error', fields: expect.objectContaining({ incidentId }) }),
  ])
})

test.each([
  [
    'null for an argument that has a default',
    'query ($first: Int) { orders(first: $first) { nodes { id } } }',
    { code: 'BAD_USER_INPUT', message: 'Argument "first" of non-null type "Int!" must not be null.' },
  ],
  [
    'a subscription',
    'subscription { orders }',
    { code: 'OPERATION_RESOLUTION_FAILURE', message: 'This API has no subscriptions: send a query or a mutation' },
  ],
])('%s is told as the client’s own, and no incident of ours', async (_, query, { code, message }) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const answer = await api.send(query, { first: null })

  expect(answer.errors).toMatchObject([{ message, extensions: { code } }])
  expect(api.log).toEqual([])
})

test('nobody has orders under an id that no order can have', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const answer = await api.send('query ($id: ID!) { customerSummary(customerId: $id) { placedCount } }', { id: 'a\0b' })

  expect(answer).toMatchObject({ data: { customerSummary: null } })
  expect(api.log).toEqual([])
})

test('a database that is away is named as such', async () => {
  await using database = await createTestDatabase({ orders: true })
  const away = database.createPool({ connection: 'postgres://nobody@127.0.0.1:1/nothing' })
  await using api = await startApi(away)

  const answer = await api.send(PLACE, { input })

  expect(answer.errors?.[0]?.extensions).toEqual({ code: 'SERVICE_UNAVAILABLE' })
  expect(answer.errors?.[0]?.message).toContain('Nothing was changed')
})

test('a part of an answer that cannot be read is not said to be a mutation that changed nothing', () => {
  const format = createErrorFormatter(silentLogger)
  const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })

  const { message, extensions } = format({ message: '', path: ['placeOrder', 'order', 'events'] }, away)

  expect(extensions).toEqual({ code: 'SERVICE_UNAVAILABLE' })
  expect(message).toContain('what a mutation has changed stands')
  expect(format({ message: '', path: ['placeOrder'] }, away).message).toContain('Nothing was changed')
})

test.each([
  ['{ nothing }', 'GRAPHQL_VALIDATION_FAILED'],
  ['{ order', 'GRAPHQL_PARSE_FAILED'],
  ['query($id: ID!) { order(id: $id) { id } }', 'BAD_USER_INPUT'],
])('GraphQL says itself what is wrong with a request: %s', async (query, code) => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db)

  const { errors } = await api.send(query)

  expect(errors?.[0]?.extensions).toEqual({ code })
  expect(JSON.stringify(errors)).not.toContain('node_modules')
})

test('without introspection an error hints at nothing in the schema', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using api = await startApi(database.db, { introspection: false })

  const wrong = await api.send('{ ordr { id } }')
  const curious = await api.send('{ __schema { types { name } } }')

  expect(JSON.stringify(wrong)).not.toContain('Did you mean')
  expect(curious.data).toBeUndefined()
})

test.each([
  ['a commit whose answer was lost', new CommitUnknownError(), 'COMMIT_UNKNOWN'],
  [
    'a pool without a free connection',
    Object.assign(new Error('acquire'), { name: 'KnexTimeoutError' }),
    'SERVICE_UNAVAILABLE',
  ],
  ['a statement that took too long', Object.assign(new Error('canceling'), { code: '57014' }), 'SERVICE_UNAVAILABLE'],
  ['a connection that ended', new Error('Connection terminated unexpectedly'), 'SERVICE_UNAVAILABLE'],
  [
    'a lost connection behind a rollback',
    new Error('rolled back', { cause: new Error('Query read timeout') }),
    'SERVICE_UNAVAILABLE',
  ],
  ['a statement that is wrong', Object.assign(new Error(CANARY), { code: '42601', severity: 'ERROR' }), 'INTERNAL'],
  ['a bug', new TypeError(CANARY), 'INTERNAL'],
])('%s has a code of its own', (_what, original, code) => {
  const error = new GraphQLError(original.message, { originalError: original, path: ['placeOrder'] })

  const seen = createErrorFormatter(silentLogger)(
    {
      message: original.message,
      path: ['placeOrder'],
      extensions: { code: 'INTERNAL_SERVER_ERROR', stacktrace: [CANARY] },
    },
    error,
  )

  expect(seen.extensions?.code).toBe(code)
  expect(JSON.stringify(seen)).not.toContain(CANARY)
})
