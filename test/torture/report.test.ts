import { expect, test } from '@jest/globals'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { goodRun } from '../support/history/evidence.ts'
import { attributeDuplicates, renderReport } from './report.ts'

const run = goodRun({ aggregates: 3, eventsEach: 4, repeats: [2, 5] })

test('lays a further copy to the fault that was under way when it was sent', () => {
  const records = run.records.map((record, index) => ({ ...record, at: index === 12 ? 60 : 500_000 }))

  expect(attributeDuplicates({ ...run, records })).toEqual({ 'kill relay': 1, 'no fault': 1 })
})

test('says in words what was broken, what came of it, and what proves nothing', () => {
  const facts = { seed: 7, minutes: 1, duplicatesByCause: {}, caughtUpMs: 900, failedFaults: [], okPerSecond: 3 }
  const recoveries = run.recoveries
  const valid = renderReport({ ...facts, recoveries, verdict: checkHistory(run) })
  const invalid = renderReport({
    ...facts,
    recoveries,
    verdict: checkHistory({ ...run, records: run.records.slice(1) }),
  })
  const unknown = renderReport({ ...facts, recoveries, verdict: checkHistory({ ...run, history: [] }) })

  expect(valid).toMatch(/^Torture with seed 7, 1 minutes: VALID/)
  expect(valid).toContain('12 committed, 14 records, 2 of them further copies')
  expect(valid).toContain('Faults that landed: kill relay 1')
  expect(invalid).toMatch(/INVALID[\s\S]*I3 is broken 1 times[\s\S]*event-0/)
  expect(unknown).toContain('Proves nothing: no fault landed.')
})
