/** The alerts as a real Prometheus raises them over a real service: under load, while Kafka is away, and with a relay thread that stands still. */

import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { onPath } from '../../src/local/on-path.ts'
import { startService } from '../support/system/service.ts'
import { startSystemStack } from '../support/system/stack.ts'
import { type Prometheus, startPrometheus } from '../support/telemetry/prometheus.ts'
import { placeOrder, readMetrics } from '../support/telemetry/service-calls.ts'
import { until } from '../support/telemetry/wait.ts'

/** The long form takes the rules as they are. */
const HURRY = process.env.TEST_LONG === '1' ? 1 : 20
/** Milliseconds that any of these alerts may take to come or to go: 7 minutes of rules, 15 s of gauges, and a busy machine. */
const PATIENCE_MS = (8 * 60_000) / HURRY + 60_000

/** Milliseconds of load before anything goes wrong: five minutes, in the rules' own time. */
const LOAD_MS = (5 * 60_000) / HURRY

/** What an outage of Kafka may raise besides: its sends fail, and its backlog is late. */
const WARRANTED = [
  'OutboxPublishErrorRatioHigh',
  'OutboxPublishDelayBudgetBurnFast',
  'OutboxPublishDelayBudgetBurnSlow',
]

const wedge = new URL('../support/telemetry/wedge.ts', import.meta.url).href
const binary = onPath('prometheus')
// Where Prometheus is missing this is skipped, and shown as such; in CI that is a failure.
const withPrometheus = binary !== null || process.env.CI ? test : test.skip

withPrometheus(
  'age, standstill, a resting topic and a dead loop raise their alerts and take them back; the others are silent',
  async () => {
    await using stack = await startSystemStack()
    const wedgeFile = join(stack.dir, 'wedged')
    await using service = await startService({
      name: 'service',
      roles: ['api', 'relay', 'consumer'],
      env: { ...stack.env, NODE_OPTIONS: `--import ${wedge}`, TEST_WEDGE_FILE: wedgeFile },
      dir: stack.dir,
    })
    await service.until(true)
    await placeOrder(service)
    await using prometheus = await startPrometheus({
      binary: binary ?? 'prometheus',
      dir: join(stack.dir, 'prometheus'),
      target: new URL(service.adminUrl).host,
      hurry: HURRY,
    })

    await using load = startOrders(service)
    await sleep(LOAD_MS)
    expect([...(await prometheus.everFired())]).toEqual([])

    const [broker] = stack.kafka.nodes
    const ofOutage = ['OutboxOldestPendingTooOld', 'OutboxRelayStalled', 'OutboxTopicPaused']
    await broker?.stop()
    await untilFiring(prometheus, ofOutage)
    await broker?.start()
    await untilQuiet(prometheus, ofOutage)
    await load.stop()
    await untilNothingPending(service)

    await writeFile(wedgeFile, '')
    await untilFiring(prometheus, ['OutboxRelayLoopDead'])
    await rm(wedgeFile)
    await untilQuiet(prometheus, ['OutboxRelayLoopDead'])

    const fired = [...(await prometheus.everFired())].filter((name) => !WARRANTED.includes(name))
    expect(fired.sort()).toEqual([...ofOutage, 'OutboxRelayLoopDead'].sort())
  },
  5 * PATIENCE_MS + LOAD_MS,
)

/** Ten orders a second, one after another. */
function startOrders(service: Parameters<typeof placeOrder>[0]) {
  const ended = new AbortController()
  const done = (async () => {
    while (!ended.signal.aborted) {
      await placeOrder(service)
      await sleep(100)
    }
  })()
  // Told by the stop, which comes last: the service may end before where the test fails.
  done.catch(() => {})
  async function stop(): Promise<void> {
    ended.abort()
    await done
  }
  return { stop, [Symbol.asyncDispose]: stop }
}

async function untilFiring(prometheus: Prometheus, names: readonly string[]): Promise<void> {
  const missing = async () => {
    const firing = await prometheus.firing()
    return names.filter((name) => !firing.has(name))
  }
  await until(names.join(), async () => ((await missing()).length === 0 ? true : null), PATIENCE_MS).catch(
    async (error: unknown) => {
      throw new Error(`Not raised: ${(await missing()).join(', ')}`, { cause: error })
    },
  )
}

async function untilQuiet(prometheus: Prometheus, names: readonly string[]): Promise<void> {
  await until(
    `The end of ${names.join()}`,
    async () => {
      const firing = await prometheus.firing()
      return names.some((name) => firing.has(name)) ? null : true
    },
    PATIENCE_MS,
  )
}

async function untilNothingPending(service: Parameters<typeof readMetrics>[0]): Promise<void> {
  await until('An empty outbox', async () => {
    return /^outbox_pending_count\{.*\} 0$/m.test(await readMetrics(service)) ? true : null
  })
}
