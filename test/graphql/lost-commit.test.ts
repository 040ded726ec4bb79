import { expect, test } from '@jest/globals'
import { createTestDatabase } from '../support/database.ts'
import { createPostgresProxy } from '../support/postgres-proxy.ts'
import { input, PLACE, startApi } from './api.ts'

test('PC-62: a mutation whose COMMIT lost its answer is found out, and answered as done', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using proxy = await createPostgresProxy(database.url)
  await using api = await startApi(database.createPool({ connection: proxy.url }))
  const lost = proxy.meet('COMMIT', 'answer lost')

  const answer = await api.send(PLACE, { input })

  await lost
  expect(answer.errors).toBeUndefined()
  const { rows } = await database.db.raw('select id from outbox')
  expect(rows.map(({ id }: { id: string }) => id)).toEqual(answer.extensions?.outbox.eventIds)
})

test('PC-62: a commit that cannot be found out is reported as unknown, and not tried again', async () => {
  await using database = await createTestDatabase({ orders: true })
  await using proxy = await createPostgresProxy(database.url)
  await using api = await startApi(database.createPool({ connection: proxy.url }))
  const lost = proxy.meet('COMMIT', 'answer lost').then(() => proxy.refuseConnections(true))

  const answer = await api.send(PLACE, { input })

  await lost
  expect(answer.data).toEqual({ placeOrder: null })
  expect(answer.errors?.[0]?.extensions).toEqual({ code: 'COMMIT_UNKNOWN' })
  expect((await database.db.raw('select 1 from outbox')).rows).toHaveLength(1)
})

test.each(['request lost', 'answer lost'] as const)(
  'a mutation whose BEGIN meets %j has changed nothing, and says that the database is away',
  async (fate) => {
    await using database = await createTestDatabase({ orders: true })
    await using proxy = await createPostgresProxy(database.url)
    await using api = await startApi(database.createPool({ connection: proxy.url }))
    const met = proxy.meet('BEGIN', fate)

    const answer = await api.send(PLACE, { input })

    await met
    expect(answer.errors?.[0]?.extensions).toEqual({ code: 'SERVICE_UNAVAILABLE' })
    expect((await database.db.raw('select 1 from outbox')).rows).toHaveLength(0)
  },
)
