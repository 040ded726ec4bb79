/** Processes whose time of day jumps by a day while they work: nothing that matters asks for it. */
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { type Admin, Kafka, logLevel } from 'kafkajs'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { createJumpingClock, type JumpingClock } from '../support/jumping-clock.ts'
import { createTopics } from '../support/kafka.ts'
import { TOPIC } from '../support/system/evidence.ts'
import { type Service, type ServiceOptions, startService } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { createTrials, type Trials, VALID } from '../support/system/trial.ts'

const DAY_MS = 24 * 60 * 60_000

/** kafkajs's number for topics as a kind of thing that has a configuration. */
const TOPIC_RESOURCE = 2

const opened = new AsyncDisposableStack()
let stack: SystemStack
let admin: Admin
let clock: JumpingClock
let jumping: Service
let trials: Trials
beforeAll(async () => {
  stack = opened.use(await startSystemStack())
  const { db, dir, kafka } = stack
  admin = new Kafka({ clientId: 'clocks', brokers: [...kafka.brokers], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  opened.defer(() => admin.disconnect())
  await createTopics(admin, { topic: TOPIC, numPartitions: 8 })
  clock = await createJumpingClock(join(dir, 'clock'))
  const start = async (name: string, roles: ServiceOptions['roles'], env = {}) =>
    opened.use(await startService({ name, roles, env: { RELAY_THREADS: '1', ...stack.env, ...env }, dir }))
  const api = await start('api', ['api'])
  await api.until(true)
  await installShadow(db)
  jumping = await start('jumping-relay', ['relay'], clock.env)
  const services = [
    api,
    jumping,
    await start('relay', ['relay']),
    await start('consumer', ['consumer'], clock.env),
  ] as const
  await Promise.all(services.map((service) => service.until(true, { withinMs: 120_000 })))
  trials = createTrials({ db, brokers: kafka.brokers, dir, services: [...services] })
})
afterAll(() => opened.disposeAsync())

test('F30 a time of day that jumps by a day and back costs no lease, no order and no effect', async () => {
  // Otherwise Kafka itself would not take records from tomorrow.
  await setTimestamps('LogAppendTime')
  await eventually('both relays have lanes', async () => (await leases()).every(({ lanes }) => lanes === 32))
  const before = await leases()

  const { verdict } = await trials.run('clocks that jump', async (load) => {
    for (const days of [1, -1, 1, 0, -1, 0]) {
      await clock.jumpTo(days * DAY_MS)
      await load.reached(load.okCount + 40)
    }
  })

  expect(verdict).toMatchObject(VALID)
  expect(verdict.counts.duplicates).toBe(0)
  expect(await leases()).toEqual(before)
}, 600_000)

test('F30 a relay that is a day ahead is refused by Kafka: it says so, parks nothing, and goes on when the clock is mended', async () => {
  await setTimestamps('CreateTime')

  const { verdict } = await trials.run('a clock that is ahead', async (load) => {
    await clock.jumpTo(DAY_MS)
    await eventually(
      'it is named',
      async () => (await jumping.readiness()).problems.some((problem) => problem.includes('INVALID_TIMESTAMP')),
      60_000,
    )
    await load.reached(load.okCount + 40)
    await clock.jumpTo(0)
  })

  expect(verdict).toMatchObject(VALID)
  expect(await stack.db('held_keys').select('aggregate_id')).toEqual([])
}, 600_000)

async function setTimestamps(type: 'CreateTime' | 'LogAppendTime'): Promise<void> {
  const configEntries = [{ name: 'message.timestamp.type', value: type }]
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: TOPIC_RESOURCE, name: TOPIC, configEntries }],
  })
}

/** Who has how many lanes, and under which tokens: what a lost lease would change. */
async function leases(): Promise<readonly { owner: string; lanes: number; tokens: string }[]> {
  const { rows } = await stack.db.raw<{ rows: { owner: string; lanes: number; tokens: string }[] }>(
    `select owner::text,
            count(*)::integer as lanes,
            string_agg(lane || ':' || token || ':' || crashes, ' ' order by lane) as tokens
       from lane_leases
      group by owner
      order by owner`,
  )
  return rows
}
