import { expect, test } from '@jest/globals'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
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
