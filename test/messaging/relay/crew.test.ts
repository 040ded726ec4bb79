import { expect, test } from '@jest/globals'
import type { Logger } from '../../../src/messaging/index.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { migrate } from '../../../src/messaging/schema/migrate.ts'
import { messagingMigrations } from '../../../src/messaging/schema/migration-files.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { quick } from './setting.ts'

test('a worker that cannot even be started is told of and tried again, and ends nobody', async () => {
  await using database = await createTestDatabase()
  let starts = 0
  await using relay = startRelay({
    db: database.db,
    ...quick,
    threads: {
      entry: new URL('../../support/relay/thread.ts', import.meta.url),
      count: 1,
      workerData: () => {
        starts += 1
        // A function cannot be sent to a thread.
        return () => {}
      },
    },
  })

  await eventually('it is tried again', () => starts >= 2)
  expect(relay.status().ready).toBe(false)
  expect(relay.status().problems).toContainEqual(expect.stringMatching(/^Relay worker 0 is down and will be restarted/))
})

test('a relay without tables says how they are made, in its status and once in its log', async () => {
  await using database = await createTestDatabase({ empty: true })
  const told: string[] = []
  const note = (_fields: object, message: string) => told.push(message)
  const logger: Logger = { debug: () => {}, info: note, warn: note, error: note }
  const problem =
    "The leases cannot be renewed: its tables are missing (42P01); run: await migrate(db, messagingMigrations, 'messaging')"
  await using relay = startRelay({
    db: database.db,
    publisher: new InMemoryBroker().createPublisher(),
    ...quick,
    logger,
  })

  await eventually('it is told', () => relay.status().problems.includes(problem))
  await migrate(database.db, messagingMigrations, 'messaging')
  await eventually('it goes on', () => relay.status().ready)

  expect(told.filter((message) => message === problem)).toHaveLength(1)
  expect(told).toContain('The leases are renewed again')
})
