import { expect, test } from '@jest/globals'
import type { Evidence, HistoryEntry } from '../../src/messaging/testing/history/evidence.ts'
import { goodRun } from '../support/history/evidence.ts'
import { attributeCopies } from './duplicates.ts'

function fault(name: string, from: number, to: number): HistoryEntry[] {
  const said = { actor: 'nemesis', operation: `${name}-${from}`, name }
  return [
    { ...said, kind: 'invoke', at: from },
    { ...said, kind: 'ok', at: to },
  ]
}

const history = [
  ...fault('kill', 1_000, 2_000),
  ...fault('freeze', 60_000, 70_000),
  ...fault('harmless', 69_000, 71_000),
]

/** A run with one further copy, sent `at`. */
function copyAt(at: number): Evidence {
  const run = goodRun({ aggregates: 3, eventsEach: 4, repeats: [2] })
  return { ...run, history, records: run.records.map((record, index) => ({ ...record, at: index === 12 ? at : 0 })) }
}

test.each<[string, number, object]>([
  ['under way', 1_500, { explained: { kill: 1 }, unexplained: 0 }],
  ['just over', 41_000, { explained: { kill: 1 }, unexplained: 0 }],
  ['the last to begin of those that send again', 70_500, { explained: { freeze: 1 }, unexplained: 0 }],
])('lays a further copy to the fault that is %s', (_, at, expected) => {
  expect(attributeCopies(copyAt(at), (name) => name !== 'harmless')).toEqual(expected)
})

test.each([
  ['before the first fault', 500],
  ['long after one', 43_000],
])('a copy sent %s has no explanation', (_, at) => {
  expect(attributeCopies(copyAt(at), (name) => name !== 'harmless')).toEqual({ explained: {}, unexplained: 1 })
})

test('a fault after which nothing is sent again explains no copy', () => {
  const copies = attributeCopies({ ...copyAt(1_500), history: fault('harmless', 1_000, 2_000) }, () => false)

  expect(copies).toEqual({ explained: {}, unexplained: 1 })
})
