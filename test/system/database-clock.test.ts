/**
 * The clock of Postgres jumps, which leases and back-off ask: order and effects
 * hold, and nothing waits for the time to come back. Long form only.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { createDatabaseClock, type DatabaseClock, faketimeLibrary } from '../support/database-clock.ts'
import { type Service, type ServiceOptions, startService } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { createTrials, type Trials, VALID } from '../support/system/trial.ts'

const HOUR_MS = 3_600_000

const missing = !process.env.TEST_LONG
  ? 'long form only: TEST_LONG=1'
  : faketimeLibrary === null
    ? 'libfaketime is not installed: apt-get install libfaketime'
    : null
const withClock = missing === null ? test : test.skip
const named = (title: string) => (missing === null ? title : `${title} (not run: ${missing})`)

const opened = new AsyncDisposableStack()
let stack: SystemStack
let clock: DatabaseClock
let relays: readonly [Service, Service]
let trials: Trials
beforeAll(async () => {
  if (missing !== null) return
  const clockDir = await mkdtemp(join(tmpdir(), 'graphql-outbox-clock-'))
  await chmod(clockDir, 0o755)
  opened.defer(() => rm(clockDir, { recursive: true }))
  clock = await createDatabaseClock(clockDir)
  stack = opened.use(await startSystemStack({ postgres: { env: clock.env } }))
  const { db, dir, kafka } = stack
  const start = async (name: string, roles: ServiceOptions['roles']) =>
    opened.use(await startService({ name, roles, env: { RELAY_THREADS: '1', ...stack.env }, dir }))
  const api = await start('api', ['api'])
  await api.until(true)
  await installShadow(db)
  relays = [await start('relay-1', ['relay']), await start('relay-2', ['relay'])]
  const services = [api, ...relays, await start('consumer', ['consumer'])] as const
  await Promise.all(services.map((service) => service.until(true, { withinMs: 120_000 })))
  trials = createTrials({ db, brokers: kafka.brokers, dir, services: [...services] })
}, 300_000)
afterAll(() => opened.disposeAsync())

withClock(
  named('F30 a clock of Postgres that jumps by hours and days disturbs neither order nor effects'),
  async () => {
    const { verdict } = await trials.run('database clock jumps', async (load) => {
      for (const hours of [24, -24, 1, 0, -1, 0]) {
        await clock.jumpTo(hours * HOUR_MS)
        await load.reached(load.okCount + 50)
      }
    })

    expect(verdict).toMatchObject(VALID)
    expect(await stack.db('held_keys').select('aggregate_id')).toEqual([])
  },
  600_000,
)

withClock(
  named('F30 the lanes of a relay that died before the clock of Postgres was set back do not wait for the old time'),
  async () => {
    const [dead, alive] = relays
    const { verdict } = await trials.run('database clock set back', async (load) => {
      await dead.kill('SIGKILL')
      await clock.jumpTo(-24 * HOUR_MS)
      await eventually('the other has all lanes', async () => (await owners()).length === 1)
      await load.reached(load.okCount + 50)
      await alive.until(true)
      dead.start()
      await dead.until(true)
      await clock.jumpTo(0)
    })

    expect(verdict).toMatchObject(VALID)
  },
  600_000,
)

async function owners(): Promise<readonly (string | null)[]> {
  return await stack.db('lane_leases').distinct('owner').pluck('owner')
}
