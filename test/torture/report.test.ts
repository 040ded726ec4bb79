import { expect, test } from '@jest/globals'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { goodRun } from '../support/history/evidence.ts'
import { type Recovery, timesByFault } from './recoveries.ts'
import { renderReport, type TortureReport } from './report.ts'
import { holdMs, STEADY } from './steadiness.ts'

const run = goodRun({ aggregates: 3, eventsEach: 4, repeats: [2, 5] })
const limits = { steadyMs: 15_000, readyMs: 60_000 }
const quick: Recovery = { faults: ['relay-kill'], endedMs: 9_000, steadyMs: 1_200, readyMs: 900, last: [], backlog: 12 }
const slow: Recovery = { ...quick, faults: ['broker-kill'], steadyMs: 16_300, last: ['effect'], backlog: 340 }

function reportOf(changes: Partial<TortureReport>): TortureReport {
  const recoveries = changes.recoveries ?? [quick]
  return {
    seed: 7,
    minutes: 1,
    authentications: null,
    machine: { cores: 2, loadAverages: [0.5, 6.25] },
    verdict: checkHistory(run),
    perSecond: { mutationsOk: 80.4, events: 81 },
    copies: { explained: { 'relay-kill': 2 }, unexplained: 0 },
    partitionCounts: [8, 10],
    steady: { bounds: STEADY, holdMs: holdMs(STEADY), usual: true },
    limits,
    recoveries,
    recoveryByFault: timesByFault(recoveries, limits),
    caughtUpMs: 900,
    failedFaults: [],
    missingFaults: [],
    ...changes,
  }
}

test('says in words how it was run, what was broken and what came of it', () => {
  const text = renderReport(reportOf({}))

  expect(text).toMatch(/^Torture with seed 7, 1 minutes: VALID/)
  expect(text).toContain('2 cores, load average 0.5 before and 6.3 after')
  expect(text).toContain('80 mutations ok and 81 events a second')
  expect(text).toContain('12 committed, 14 records, 2 of them further copies')
  expect(text).toContain('Further copies by cause: relay-kill 2; all are explained')
  expect(text).toContain('Faults that landed: kill relay 1')
  expect(text).toContain('Partitions in force: 8, then 10')
})

test('says how long the system took to be steady again, by fault, and which time was too long', () => {
  const text = renderReport(reportOf({ recoveries: [quick, slow] }))

  expect(text).toMatch(/broker-kill +1 +16\.3 s +16\.3 s\n +relay-kill +1 +1\.2 s +1\.2 s\n +any +2 +16\.3 s +16\.3 s/)
  expect(text).toContain('1 of 2 within 15.0 s')
  expect(text).toContain(
    'LATE: broker-kill, which ended at 00:09: steady after 16.3 s, ready after 0.9 s; last to come back: effect',
  )
})

test.each<[string, Partial<TortureReport>, string]>([
  ['what is broken', { verdict: checkHistory({ ...run, records: run.records.slice(1) }) }, 'I3 is broken 1 times'],
  ['what proves nothing', { verdict: checkHistory({ ...run, history: [] }) }, 'Proves nothing: no fault landed.'],
  ['a copy without a cause', { copies: { explained: {}, unexplained: 3 } }, 'by cause: none; UNEXPLAINED 3'],
  ['a fault that was not inflicted', { failedFaults: ['api-kill: no'] }, 'Not inflicted: api-kill: no'],
  [
    'a fault for which the machine has no means',
    { missingFaults: ['disk-full-postgres: no'] },
    'NOT TESTED HERE: disk-full-postgres: no',
  ],
  ['that all was over TLS', { authentications: 31 }, 'TLS with SCRAM-SHA-512, 31 authentications'],
  [
    'a machine that was slow from the start',
    { steady: { bounds: STEADY, holdMs: 3_000, usual: false } },
    'no usual bounds',
  ],
])('names %s', (_, changes, words) => {
  expect(renderReport(reportOf(changes))).toContain(words)
})
