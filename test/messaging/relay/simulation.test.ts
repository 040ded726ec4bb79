/** The real relay over memory, in virtual time, with everything broken that can be. A seed repeats its run. */
import { expect, test } from '@jest/globals'
import { checkHistory } from '../../../src/messaging/testing/history/check-history.ts'
import { simulate } from '../../support/simulation/simulate.ts'

/** How many seeds; more with SIMULATION_SEEDS, another set with SIMULATION_FROM. */
const from = Number(process.env.SIMULATION_FROM ?? 1)
const seeds = Array.from({ length: Number(process.env.SIMULATION_SEEDS ?? 25) }, (_, index) => from + index)

test('publishes everything once and in order while nothing is broken', async () => {
  const { evidence, defects } = await simulate({ seed: 1, faults: false })
  const verdict = checkHistory(evidence)

  expect(defects).toEqual([])
  expect(verdict).toMatchObject({ verdict: 'valid', violations: [], counts: { committed: 600, records: 600 } })
})

test.each(seeds)('loses, invents and reorders nothing under faults (seed %i)', async (seed) => {
  const { evidence, defects } = await simulate({ seed })
  const { verdict, violations, doubts } = checkHistory(evidence, { keep: 2 })

  expect({ verdict, violations, doubts, defects }).toEqual({
    verdict: 'valid',
    violations: [],
    doubts: [],
    defects: [],
  })
})

test('repeats a run from its seed', async () => {
  const [first, second] = [await simulate({ seed: 7 }), await simulate({ seed: 7 })]
  expect(second.evidence.records).toEqual(first.evidence.records)
  expect(second.lasted).toBe(first.lasted)
})
