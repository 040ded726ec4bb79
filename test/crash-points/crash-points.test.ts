/**
 * A process with write path, relay and consumer dies at one point after the
 * other, is started again, finishes its work, and is judged by the history
 * checker. A sample in every run, from a seed; every point with TEST_LONG=1.
 */
import { availableParallelism } from 'node:os'
import { beforeAll, expect, jest, test } from '@jest/globals'
import type { CrashTarget } from '../support/crash/points.ts'
import { type CrashRun, runWithCrash } from '../support/crash/run.ts'
import { seededRandom } from '../support/seeded-random.ts'

const LONG = process.env.TEST_LONG === '1'
const SEED = Number(process.env.CRASH_SEED ?? 1)
/** Points of each role beside the named ones, in a run that is not the long one. */
const SAMPLE = 2
/** Most of a crash is waiting: for a lease to end, for a group to form. */
const AT_ONCE = 3 * availableParallelism()
/** Failures that suffice: what hangs once would hang again. */
const ENOUGH = 3

/** The points that must be among those met: the write path's (F1), the relay's (F10), the consumer's (F25). */
const NAMED = {
  'before BEGIN': 'write: begin, before',
  'after the state write': 'write: insert into orders, answered',
  'after the outbox insert': 'write: insert into outbox, answered',
  'COMMIT sent': 'write: commit, sent',
  'after the claim': 'relay: update lane_leases, answered',
  'after a renewal': 'relay: insert into relay_workers, answered',
  'before produce': 'relay: produce request, before',
  'produce written': 'relay: produce request, sent',
  'acknowledgement received': 'relay: publish, answered',
  'before the mark': 'relay: update outbox, before',
  'after the mark': 'relay: update outbox, answered',
  'consumer: fetched': 'consumer: fetched batch, before',
  'consumer: BEGIN': 'consumer: begin, answered',
  'consumer: dedupe inserted': 'consumer: insert into processed_events, answered',
  'consumer: effect written': 'consumer: insert into effects, answered',
  'consumer: COMMIT sent': 'consumer: commit, sent',
  'before the offset commit': 'consumer: offset commit, before',
  'after the offset commit': 'consumer: offset commit, answered',
  'dead-letter write': 'consumer: insert into dead_letters, answered',
  'redrive write': 'consumer: update dead_letters, answered',
} as const

jest.setTimeout(LONG ? 3_600_000 : 1_200_000)

let undisturbed: CrashRun

beforeAll(async () => {
  undisturbed = await runWithCrash(null)
})

test('F1 F10 F25 a run that nobody kills meets every named point, doubles nothing and is judged valid', () => {
  const met = new Set(undisturbed.points)
  expect(Object.entries(NAMED).filter(([, point]) => !met.has(point))).toEqual([])
  expect(undisturbed.verdict).toMatchObject({ verdict: 'valid', violations: [], counts: { duplicates: 0 } })
})

test('F10 what has left the process takes effect though nobody hears of it, and what has not left does not', async () => {
  const moments = ['before', 'sent', 'answered']
  const runs = moments.map((moment) => runWithCrash({ point: `relay: produce request, ${moment}`, occurrence: 1 }))
  const doubled = (await Promise.all(runs)).map(({ crashed, verdict }) => crashed && verdict.counts.duplicates > 0)

  expect(doubled).toEqual([false, true, true])
})

test.each([
  ['F1', 'write'],
  ['F10', 'relay'],
  ['F25', 'consumer'],
])(
  '%s a process that dies at any point of its %s is followed by one that finishes: nothing lost, doubled or out of order',
  async (_, role) => {
    const targets = targetsOf(role)
    const failures: unknown[] = []
    const diedAt = new Set<string>()
    await inParallel(targets, async (target) => {
      if (failures.length >= ENOUGH) return
      try {
        const { crashed, verdict } = await runWithCrash(target)
        if (crashed) diedAt.add(target.point)
        const fine = verdict.verdict === 'valid'
        if (!fine) failures.push({ ...target, doubts: verdict.doubts, violations: verdict.violations.slice(0, 2) })
      } catch (error) {
        failures.push({ ...target, error })
      }
    })

    expect(failures).toEqual([])
    expect(namedOf(role).filter((point) => !diedAt.has(point))).toEqual([])
  },
)

function namedOf(role: string): readonly string[] {
  return Object.values(NAMED).filter((point) => point.startsWith(`${role}: `))
}

/** Every point of a run that passed all of them; or each named one, the first and the last time, and some others. */
function targetsOf(role: string): readonly CrashTarget[] {
  const counts = new Map<string, number>()
  const all = undisturbed.points.flatMap((point) => {
    const occurrence = (counts.get(point) ?? 0) + 1
    counts.set(point, occurrence)
    return point.startsWith(`${role}: `) ? [{ point, occurrence }] : []
  })
  if (LONG) return all
  const random = seededRandom(SEED)
  const named = new Set(namedOf(role))
  const isChosen = ({ point, occurrence }: CrashTarget) =>
    named.has(point) && (occurrence === 1 || occurrence === counts.get(point))
  const others = all.filter((target) => !isChosen(target)).map((target) => ({ target, by: random() }))
  const sample = others.sort((a, b) => a.by - b.by).slice(0, SAMPLE)
  return [...all.filter(isChosen), ...sample.map(({ target }) => target)]
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items]
  const worker = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}
