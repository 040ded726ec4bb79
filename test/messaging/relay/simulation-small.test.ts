/**
 * The same simulation with a few aggregates and two relays, for thousands of
 * seeds: many short histories meet more interleavings than a few long ones.
 */
import { expect, test } from '@jest/globals'
import { checkHistory } from '../../../src/messaging/testing/history/check-history.ts'
import { simulate } from '../../support/simulation/simulate.ts'

/** How many seeds; more or one with SIMULATION_SMALL, another set with SIMULATION_FROM. */
const COUNT = Number(process.env.SIMULATION_SMALL ?? 3_000)
const FROM = Number(process.env.SIMULATION_FROM ?? 1)
const AT_ONCE = 100
/** Of so many, runs that may be over before a fault has met them. They prove nothing, and are no fault. */
const UNPROVEN = 5

const small = { relays: 2, aggregates: 8, eventsEach: 5 }

for (let from = FROM; from < FROM + COUNT; from += AT_ONCE) {
  const to = Math.min(from + AT_ONCE, FROM + COUNT) - 1
  test(`loses, invents and reorders nothing in a small system under faults (seeds ${from} to ${to})`, async () => {
    const bad: unknown[] = []
    const unproven: number[] = []
    for (let seed = from; seed <= to; seed += 1) {
      const { evidence, defects } = await simulate({ ...small, seed })
      const { verdict, violations, doubts } = checkHistory(evidence, { keep: 2 })
      if (verdict === 'invalid' || defects.length > 0) bad.push({ seed, verdict, violations, doubts, defects })
      else if (verdict === 'unknown') unproven.push(seed)
    }

    expect(bad).toEqual([])
    expect(unproven.length).toBeLessThanOrEqual(UNPROVEN)
  })
}
