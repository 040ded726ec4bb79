/** The checker is checked by damage: each kind of it, done to evidence of a good run, must be found and named. */
import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { checkHistory } from '../../../../src/messaging/testing/history/check-history.ts'
import type { ConsumerEvidence, Evidence } from '../../../../src/messaging/testing/history/evidence.ts'
import type { Invariant } from '../../../../src/messaging/testing/history/findings.ts'
import { goodRun } from '../../../support/history/evidence.ts'

const run = goodRun({ aggregates: 7, eventsEach: 5, repeats: [3, 3, 20] })

/** The invariants that a run breaks. */
function broken(evidence: Evidence): Invariant[] {
  return Object.keys(checkHistory(evidence).violationCounts) as Invariant[]
}

function changeAt<Item>(items: readonly Item[], index: number, change: (item: Item) => Partial<Item>): Item[] {
  return items.map((item, at) => (at === index ? { ...item, ...change(item) } : item))
}

function withConsumer(evidence: Evidence, change: (consumer: ConsumerEvidence) => Partial<ConsumerEvidence>): Evidence {
  return { ...evidence, consumers: changeAt(evidence.consumers, 0, change) }
}

test('calls a run without damage valid, repeats within the bound included', () => {
  const verdict = checkHistory(run)

  expect(verdict).toMatchObject({ verdict: 'valid', violations: [], doubts: [] })
  expect(verdict.counts).toMatchObject({ committed: 35, records: 38, duplicates: 3, faults: { 'kill relay': 1 } })
})

const damages: [string, Invariant, Evidence][] = [
  ['a dropped record', 'I3', { ...run, records: run.records.filter(({ id }) => id !== 'event-11') }],
  ['a record doubled once too often', 'I7', { ...run, disturbances: 1 }],
  ['a record of an event that was never committed', 'I4', { ...run, committed: run.committed.slice(0, -1) }],
  ['a record without an id', 'I4', { ...run, records: changeAt(run.records, 8, () => ({ id: null })) }],
  ['an altered payload', 'I4', { ...run, records: changeAt(run.records, 8, () => ({ payloadHash: 'other' })) }],
  [
    'a tombstone where a payload was',
    'I4',
    { ...run, records: changeAt(run.records, 8, () => ({ payloadHash: null })) },
  ],
  ['another key', 'I4', { ...run, records: changeAt(run.records, 8, () => ({ key: 'order-0' })) }],
  ['another type', 'I4', { ...run, records: changeAt(run.records, 8, () => ({ type: 'OrderShipped' })) }],
  ['another version', 'I4', { ...run, records: changeAt(run.records, 8, () => ({ version: 9 })) }],
  [
    'a wrong partition',
    'I5',
    { ...run, records: changeAt(run.records, 8, (r) => ({ partition: (r.partition + 1) % 4 })) },
  ],
  [
    'a copy on a wrong partition',
    'I5',
    { ...run, records: changeAt(run.records, 37, (r) => ({ partition: (r.partition + 1) % 4 })) },
  ],
  ['two events of an aggregate swapped on the topic', 'I6', swapped(run, 'event-7', 'event-14')],
  [
    'a version left out at the append',
    'I6',
    { ...run, committed: changeAt(run.committed, 34, () => ({ version: 7 })) },
  ],
  ['a skipped event that stands on its topic', 'I13', { ...run, skipped: ['event-11'] }],
  ['a skipped event that never was', 'I13', { ...run, skipped: ['phantom'] }],
  ['a skipped event that never was', 'I13', { ...run, skipped: ['phantom'] }],
  ['a forgotten inbox row', 'I8', withConsumer(run, ({ processed }) => ({ processed: processed.slice(1) }))],
  ['a missing effect', 'I8', withConsumer(run, ({ effects }) => ({ effects: effects?.slice(1) ?? null }))],
  ['a doubled effect', 'I8', withConsumer(run, ({ effects }) => ({ effects: [...(effects ?? []), 'event-4'] }))],
  ['an effect of nothing', 'I8', withConsumer(run, ({ effects }) => ({ effects: [...(effects ?? []), 'phantom'] }))],
  ['a sum that is off by one', 'I8', { ...run, sums: [{ name: 'total', expected: 35, actual: 36 }] }],
  ['an offset past unfinished work', 'I9', withConsumer(run, ({ processed }) => ({ processed: processed.slice(1) }))],
  ['an event without state', 'I1', { ...run, states: run.states.slice(1) }],
  ['a state ahead of its events', 'I1', { ...run, states: changeAt(run.states, 2, () => ({ version: 6 })) }],
  [
    'a state without event',
    'I1',
    { ...run, states: [...run.states, { aggregateType: 'order', aggregateId: 'x', version: 1 }] },
  ],
  [
    'an ok that was not committed',
    'I2',
    { ...run, history: changeAt(run.history, 5, () => ({ kind: 'ok' as const, eventIds: ['rolled-back'] })) },
  ],
  ['a fail that was committed', 'I2', { ...run, history: changeAt(run.history, 2, () => ({ kind: 'fail' as const })) }],
  [
    'a commit that nobody invoked',
    'I2',
    { ...run, committed: changeAt(run.committed, 3, () => ({ operation: 'other' })) },
  ],
  ['a mark under an old token', 'I10', { ...run, marks: changeAt(run.marks, 3, () => ({ token: 0n })) }],
  ['a mark by another owner', 'I10', { ...run, marks: changeAt(run.marks, 3, () => ({ owner: 'b' })) }],
  ['a backlog that stays', 'I11', { ...run, final: { pending: 1, lanes: [], liveOwners: null } }],
  ['an orphaned lane', 'I11', { ...run, final: { pending: 0, lanes: [{ lane: 3, owner: null }], liveOwners: ['a'] } }],
  ['a slow recovery', 'I11', { ...run, recoveries: [{ name: 'relay', tookMs: 1_001, withinMs: 1_000 }] }],
  ['no recovery', 'I11', { ...run, recoveries: [{ name: 'relay', tookMs: null, withinMs: 1_000 }] }],
  [
    'a repeat with another answer',
    'I12',
    { ...run, history: [...run.history, { ...okOf(run, 'event-3'), idempotencyKey: 'key-4' }] },
  ],
  ['an event set aside without a reason', 'I3', { ...run, setAside: [{ id: 'event-1', reason: '' }] }],
]

test.each(damages)('finds %s', (_, invariant, damaged) => {
  expect(broken(damaged)).toContain(invariant)
  expect(checkHistory(damaged).verdict).toBe('invalid')
})

test('excuses what was set aside with a reason, on the topic and at the consumer', () => {
  const parked = {
    ...run,
    records: run.records.filter(({ id }) => id !== 'event-28'),
    setAside: [{ id: 'event-28', reason: 'parked: MESSAGE_TOO_LARGE' }],
  }
  expect(broken(withConsumer(parked, ({ deadLetters }) => ({ deadLetters: [...deadLetters, 'event-28'] })))).toEqual([])
})

test('finds that the first event of an aggregate was lost before anything was recorded of it', () => {
  const lost = neverSeen(run, 'event-3')

  expect(broken(lost)).toEqual(['I6'])
  expect(checkHistory(lost).violations).toMatchObject([{ ids: ['event-10'], aggregateId: 'order-3' }])
})

test('lets aggregates begin at any version where the recording began later than they did', () => {
  expect(broken({ ...neverSeen(run, 'event-3'), fromTheStart: false })).toEqual([])
})

test('lets an aggregate without versions begin as it likes', () => {
  const unversioned = {
    ...run,
    committed: run.committed.map((event) => ({ ...event, version: null })),
    records: run.records.map((record) => ({ ...record, version: null })),
  }

  expect(broken(unversioned)).toEqual([])
})

test('wants nothing of a skipped event but that it is nowhere', () => {
  const skipped = {
    ...run,
    records: run.records.filter(({ id }) => id !== 'event-28'),
    setAside: [{ id: 'event-28', reason: 'skipped' }],
    skipped: ['event-28'],
  }
  expect(broken(withConsumer(skipped, ({ deadLetters }) => ({ deadLetters: [...deadLetters, 'event-28'] })))).toEqual(
    [],
  )
})

test('allows a declared resize, and no way back to the earlier count', () => {
  const resized = { ...run, topics: [{ topic: 'order.events', partitionCounts: [4, 8] }] }
  const moved = {
    ...resized,
    records: run.records.map((r, at) => ({ ...r, partition: at > 20 ? onEight(r.key) : r.partition })),
  }
  const back = { ...moved, records: changeAt(moved.records, 30, (r) => ({ partition: onFour(r.key) })) }

  expect(broken(moved)).toEqual([])
  expect(broken(back)).toContain('I5')
})

test('shows the history of the event that was lost, and the faults of that time', () => {
  const [violation] = checkHistory({ ...run, records: run.records.filter(({ id }) => id !== 'event-11') }).violations

  expect(violation).toMatchObject({ invariant: 'I3', ids: ['event-11'], aggregateId: 'order-4' })
  expect(violation?.around.map(({ name }) => name)).toEqual(expect.arrayContaining(['change', 'kill relay']))
})

test('counts every violation and shows only the first of each kind', () => {
  const verdict = checkHistory({ ...run, records: run.records.slice(-1) }, { keep: 2 })

  expect(verdict.violationCounts.I3).toBe(34)
  expect(verdict.violations.filter(({ invariant }) => invariant === 'I3')).toHaveLength(2)
})

test.each([
  [
    'nothing was committed',
    { ...run, committed: [], records: [], consumers: [], states: [], history: run.history.slice(-1) },
  ],
  ['no fault landed', { ...run, history: run.history.filter(({ actor }) => actor !== 'nemesis') }],
  [
    'no fault met any load',
    { ...run, history: run.history.map((e) => (e.actor === 'nemesis' ? { ...e, at: 90_000 } : e)) },
  ],
])('does not call a run valid when %s', (doubt, evidence) => {
  expect(checkHistory(evidence)).toMatchObject({ verdict: 'unknown', doubts: expect.arrayContaining([doubt]) })
})

test('says invalid and not unknown when both would do', () => {
  expect(checkHistory({ ...run, records: [] }).verdict).toBe('invalid')
})

const shapes = fc.record({
  aggregates: fc.integer({ min: 1, max: 12 }),
  eventsEach: fc.integer({ min: 2, max: 9 }),
  repeats: fc.array(fc.nat(200), { maxLength: 5 }),
})

test('calls every undamaged run valid', () => {
  fc.assert(
    fc.property(shapes, (shape) => {
      expect(checkHistory(goodRun(shape))).toMatchObject({ verdict: 'valid', violations: [] })
    }),
  )
})

test('finds any single record dropped, altered, misplaced or never committed', () => {
  const damage = fc.constantFrom('drop', 'alter', 'misplace', 'invent')
  fc.assert(
    fc.property(shapes, fc.nat(), damage, (shape, pick, kind) => {
      const good = goodRun({ ...shape, repeats: [] })
      const at = pick % good.records.length
      const records =
        kind === 'drop'
          ? good.records.filter((_, index) => index !== at)
          : changeAt(good.records, at, (record) =>
              kind === 'alter'
                ? { payloadHash: 'other' }
                : kind === 'misplace'
                  ? { partition: record.partition ^ 1 }
                  : { id: 'phantom' },
            )
      expect(checkHistory({ ...good, records }).verdict).toBe('invalid')
    }),
  )
})

test('finds any two events of one aggregate swapped', () => {
  fc.assert(
    fc.property(shapes, fc.nat(), (shape, pick) => {
      const good = goodRun({ ...shape, repeats: [] })
      const first = pick % (good.committed.length - shape.aggregates)
      expect(broken(swapped(good, `event-${first}`, `event-${first + shape.aggregates}`))).toContain('I6')
    }),
  )
})

test('judges a hundred thousand events in linear time', () => {
  const few = goodRun({ aggregates: 1_250, eventsEach: 20 })
  const many = goodRun({ aggregates: 5_000, eventsEach: 20 })

  const short = processorTimeOf(() => checkHistory(few))
  const long = processorTimeOf(() => checkHistory(many))

  // Of four times as many. Were it quadratic, it would be sixteen times as long.
  expect(long).toBeLessThan(9 * short)
})

/** Milliseconds of this process alone, whatever else the machine does. */
function processorTimeOf(work: () => void): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

function swapped(evidence: Evidence, one: string, other: string): Evidence {
  const [a, b] = [one, other].map((id) => evidence.records.find((record) => record.id === id))
  if (!a || !b) throw new Error(`No records of ${one} and ${other}`)
  const records = evidence.records.map((record) => {
    if (record !== a && record !== b) return record
    const { topic, partition, offset } = record
    return { ...(record === a ? b : a), topic, partition, offset }
  })
  return { ...evidence, records }
}

/** The run as it would look if an event had left no trace at all. */
function neverSeen(evidence: Evidence, id: string): Evidence {
  const { operation } = okOf(evidence, id)
  const others = (ids: readonly string[]) => ids.filter((other) => other !== id)
  return {
    ...evidence,
    history: evidence.history.filter((entry) => entry.operation !== operation),
    committed: evidence.committed.filter((event) => event.id !== id),
    records: evidence.records.filter((record) => record.id !== id),
    consumers: evidence.consumers.map((consumer) => ({
      ...consumer,
      processed: others(consumer.processed),
      effects: others(consumer.effects ?? []),
    })),
    marks: evidence.marks.filter((mark) => mark.id !== id),
  }
}

function okOf(evidence: Evidence, id: string) {
  const entry = evidence.history.find(({ eventIds }) => eventIds?.includes(id))
  if (!entry) throw new Error(`Nobody answered with ${id}`)
  return entry
}

function onEight(key: string | null): number {
  return ((-1 - Number(key?.slice('order-'.length))) & 0x7fffffff) % 8
}

function onFour(key: string | null): number {
  return onEight(key) % 4
}
