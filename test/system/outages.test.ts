/** What a service does while Kafka or Postgres is away, and when it is asked to end. */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { recordHistory } from '../../src/messaging/testing/history/recorder.ts'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import { caughtUp, collectEvidence } from '../support/system/evidence.ts'
import { type Load, startLoad } from '../support/system/load.ts'
import { type Service, startService } from '../support/system/service.ts'
import { type SystemStack, startSystemStack } from '../support/system/stack.ts'
import { until } from '../support/telemetry/wait.ts'

/** Seconds that the broker stays away; 60 in the long form. */
const OUTAGE_SECONDS = Number(process.env.SYSTEM_OUTAGE_SECONDS ?? 20)

let stack: SystemStack
let service: Service
beforeAll(async () => {
  stack = await startSystemStack()
  service = await startService({ name: 'service', roles: ['api', 'relay', 'consumer'], env: stack.env, dir: stack.dir })
  await service.until(true)
  await installShadow(stack.db)
})
afterAll(async () => {
  await service?.[Symbol.asyncDispose]()
  await stack?.[Symbol.asyncDispose]()
})

const historyFiles: string[] = []
let disturbances = 0

/** Orders for as long as `during` takes, then lets everything calm down and judges all that happened so far. */
async function underLoad(name: string, during: (load: Load) => Promise<void>): Promise<void> {
  const file = join(stack.dir, `${name}.jsonl`)
  historyFiles.push(file)
  using history = recordHistory(file)
  await using load = startLoad({ urls: [service.url], history, clients: 4, pauseMs: 20 })
  await load.reached(50)
  const fault = history.invoke('nemesis', name)
  disturbances += 1
  await during(load)
  fault.ok()
  await load.stop()
  await service.until(true)
  await caughtUp(stack.db, 120_000)

  const evidence = await collectEvidence({
    db: stack.db,
    brokers: stack.kafka.brokers,
    historyFiles,
    partitionCounts: [8],
    disturbances,
  })
  const { verdict, doubts, violations } = checkHistory(evidence, { keep: 3 })
  expect({ verdict, doubts, violations }).toEqual({ verdict: 'valid', doubts: [], violations: [] })
}

test(`commits mutations while the broker is away for ${OUTAGE_SECONDS} s, says why it is not ready, and catches up`, async () => {
  await underLoad('stop broker', async (load) => {
    const [broker] = stack.kafka.nodes
    await broker?.stop()
    await service.until(false, { role: 'relay' })
    const before = load.okCount
    await sleep(OUTAGE_SECONDS * 1_000)

    expect(load.okCount - before).toBeGreaterThan(OUTAGE_SECONDS)
    await service.until(true, { role: 'api' })
    await until('The reason', async () => {
      const { ready, problems } = await service.readiness()
      return !ready && /^relay: .*(broker|partition|topic)/im.test(problems.join('\n')) ? true : null
    })
    await broker?.start()
  })

  const spent = await stack.db('outbox').where('attempts', '>', 0).select('id')
  expect(spent).toEqual([])
  expect(await stack.db('held_keys').select('aggregate_id')).toEqual([])
  expect(await stack.db('dead_letters').select('event_id')).toEqual([])
}, 600_000)

test.each([
  ['restart Postgres', () => stack.postgres.restart()],
  [
    'kill Postgres',
    async () => {
      await stack.postgres.kill('SIGQUIT')
      await stack.postgres.start()
    },
  ],
] as const)(
  'recovers without a restart of its own: %s',
  async (name, breakIt) => {
    const { pid } = service
    await underLoad(name, async (load) => {
      await breakIt()
      await service.until(true)
      await load.reached(load.okCount + 50)
    })
    expect(service.pid).toBe(pid)
  },
  600_000,
)

test('F33 ends on SIGTERM with everything settled or handed back: code 0, no lane owned, nothing doubled', async () => {
  const published = (await collect()).counts
  const file = join(stack.dir, 'term.jsonl')
  historyFiles.push(file)
  using history = recordHistory(file)
  await using load = startLoad({ urls: [service.url], history, clients: 8 })
  await load.reached(200)

  const ended = await service.kill('SIGTERM')
  await load.stop()

  expect(ended).toBe('exit code 0')
  expect(await stack.db('lane_leases').whereNotNull('owner').select('lane')).toEqual([])
  expect(await stack.db('relay_workers').select('owner')).toEqual([])
  service.start()
  await service.until(true)
  await caughtUp(stack.db, 120_000)
  const { verdict, violations, counts } = await collect()
  expect({ verdict, violations }).toEqual({ verdict: 'valid', violations: [] })
  expect(counts.duplicates).toBe(published.duplicates)
}, 600_000)

async function collect() {
  const evidence = await collectEvidence({
    db: stack.db,
    brokers: stack.kafka.brokers,
    historyFiles,
    partitionCounts: [8],
    disturbances,
    faultsExpected: false,
  })
  return checkHistory(evidence, { keep: 3 })
}
