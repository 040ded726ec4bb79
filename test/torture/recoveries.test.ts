import { expect, test } from '@jest/globals'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { goodRun } from '../support/history/evidence.ts'
import { asEvidence, type Recovery, timesByFault } from './recoveries.ts'

const limits = { steadyMs: 15_000, readyMs: 60_000 }

function recovery(faults: readonly string[], steadyMs: number | null, readyMs: number | null = 500): Recovery {
  return { faults, endedMs: 83_000, steadyMs, readyMs, last: ['effect'], backlog: 40 }
}

test('counts two faults at once with each of them, and puts the slowest first', () => {
  const recoveries = [
    recovery(['relay-kill'], 1_000),
    recovery(['relay-kill', 'broker-kill'], 9_000),
    recovery(['relay-kill'], 3_000),
  ]

  const times = timesByFault(recoveries, limits)

  expect(Object.entries(times)).toEqual([
    ['relay-kill', { landed: 3, medianMs: 3_000, longestMs: 9_000, late: 0 }],
    ['broker-kill', { landed: 1, medianMs: 9_000, longestMs: 9_000, late: 0 }],
  ])
})

test('what never came back is late, and longer than all that did', () => {
  const times = timesByFault([recovery(['a'], 1_000), recovery(['b'], null), recovery(['b'], 200)], limits)

  expect(Object.entries(times)).toEqual([
    ['b', { landed: 2, medianMs: null, longestMs: null, late: 1 }],
    ['a', { landed: 1, medianMs: 1_000, longestMs: 1_000, late: 0 }],
  ])
})

test.each<[string, Recovery, string]>([
  [
    'is not steady in time',
    recovery(['relay-kill'], 15_001),
    'steadiness after relay-kill, which ended at 01:23, took',
  ],
  ['is never steady', recovery(['a', 'b'], null), 'steadiness after a + b, which ended at 01:23, never recovered'],
  [
    'is not ready',
    recovery(['api-kill'], 100, null),
    'readiness after api-kill, which ended at 01:23, never recovered',
  ],
])('a run that %s is invalid, and says after what', (_, late, problem) => {
  const run = { ...goodRun({ aggregates: 2, eventsEach: 2 }), recoveries: asEvidence([late], limits) }

  const { verdict, violations } = checkHistory(run)

  expect(verdict).toBe('invalid')
  expect(violations).toEqual([expect.objectContaining({ invariant: 'I11', problem: expect.stringContaining(problem) })])
})

test('a run that is steady just in time is valid', () => {
  const recoveries = asEvidence([recovery(['relay-kill'], 15_000, 60_000)], limits)

  expect(checkHistory({ ...goodRun({ aggregates: 2, eventsEach: 2 }), recoveries }).verdict).toBe('valid')
})
