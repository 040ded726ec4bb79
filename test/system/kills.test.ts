/** The promise, held against processes that are killed while customers order. */
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { type HistoryRecorder, recordHistory } from '../../src/messaging/testing/history/recorder.ts'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import { caughtUp, collectEvidence } from '../support/system/evidence.ts'
import { startLoad } from '../support/system/load.ts'
import { type Service, startService } from '../support/system/service.ts'
import { startSystemStack } from '../support/system/stack.ts'

const MUTATIONS = Number(process.env.SYSTEM_MUTATIONS ?? 10_000)

test(`${MUTATIONS} mutations reach the topic and the read model once and in order, whichever processes are killed meanwhile`, async () => {
  await using stack = await startSystemStack()
  const { dir, env, db } = stack
  await using api = await startService({ name: 'api', roles: ['api'], env, dir })
  await api.until(true)
  await installShadow(db)
  await using relay = await startService({ name: 'relay', roles: ['relay'], env, dir })
  await using consumer = await startService({ name: 'consumer', roles: ['consumer'], env, dir })
  await Promise.all([relay.until(true), consumer.until(true)])
  const historyFile = join(dir, 'history.jsonl')
  using history = recordHistory(historyFile)

  await using load = startLoad({ urls: [api.url], history })
  const victims = [relay, consumer, relay, consumer, relay]
  for (const [index, victim] of victims.entries()) {
    await load.reached((MUTATIONS * (index + 1)) / (victims.length + 1))
    await killAndRestart(victim, history)
  }
  await load.reached(MUTATIONS)
  await load.stop()
  await caughtUp(db, 240_000)
  await Promise.all([relay.until(true), consumer.until(true)])

  const evidence = await collectEvidence({
    db,
    brokers: stack.kafka.brokers,
    historyFiles: [historyFile],
    partitionCounts: [8],
    disturbances: victims.filter((victim) => victim === relay).length,
  })
  const { verdict, doubts, violations, counts } = checkHistory(evidence, { keep: 3 })
  expect({ verdict, doubts, violations }).toEqual({ verdict: 'valid', doubts: [], violations: [] })
  expect(counts.committed).toBeGreaterThanOrEqual(MUTATIONS)
  // Nobody who orders is to notice. On a busy machine the API refuses some by itself.
  const { ok, fail, info } = counts.operations
  expect(ok).toBeGreaterThanOrEqual(MUTATIONS)
  expect(fail + info).toBeLessThan(MUTATIONS / 20)
  expect(counts.faults).toEqual({ 'kill relay': 3, 'kill consumer': 2 })
}, 1_800_000)

async function killAndRestart(victim: Service, history: HistoryRecorder): Promise<void> {
  const fault = history.invoke('nemesis', `kill ${victim.name}`)
  await victim.kill('SIGKILL')
  victim.start()
  await victim.until(true)
  fault.ok()
}
