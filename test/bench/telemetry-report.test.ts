/** What the benchmark of telemetry makes of its rounds, from rounds made by hand. */
import { expect, test } from '@jest/globals'
import type { Drain } from '../../bench/drain.ts'
import { contenderNames, passes, renderTelemetry, reportTelemetry } from '../../bench/telemetry-report.ts'

const { off, metrics, some, all } = contenderNames

const shape = { events: 1_000, payloadBytes: 440, eventsPerAggregate: 10, partitions: 8, rounds: 9 }

/** A round in which each contender takes so many microseconds of CPU for an event. */
function roundOf(micros: Readonly<Record<string, number>>): readonly Drain[] {
  return Object.entries(micros).map(([contender, cpuMicrosPerEvent]) => ({
    contender,
    events: 1_000,
    seconds: 0.5,
    cpuMicrosPerEvent,
    faults: [],
  }))
}

/** Nine rounds on a machine that becomes slower from one to the next, which falls on all contenders alike. */
function nineRounds(micros: Readonly<Record<string, number>>): readonly Drain[] {
  return [1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((slow) =>
    roundOf(Object.fromEntries(Object.entries(micros).map(([name, value]) => [name, slow * value]))),
  )
}

test('compares round by round: metrics with none, and traces with metrics alone as well', () => {
  const { costs } = reportTelemetry(nineRounds({ [all]: 150, [off]: 100, [some]: 106.08, [metrics]: 104 }), shape)

  expect(costs.map(({ contender }) => contender)).toEqual([off, metrics, some, all])
  expect(
    costs.map(({ differences }) => differences.map(({ over, share }) => [over, Number(share.median.toFixed(3))])),
  ).toEqual([
    [],
    [[off, 0.04]],
    [
      [off, 0.061],
      [metrics, 0.02],
    ],
    [
      [off, 0.5],
      [metrics, 0.442],
    ],
  ])
  const [, { differences: [overOff] = [] } = {}] = costs
  expect(overOff?.share.lowerQuartile).toBeCloseTo(0.04)
  expect(overOff?.share.upperQuartile).toBeCloseTo(0.04)
})

test('meets the targets with at most 5 % for metrics, and 5 % more for 1 % of the events', () => {
  const report = reportTelemetry(nineRounds({ [off]: 100, [metrics]: 105, [some]: 110, [all]: 150 }), shape)

  expect(report.targets.map(({ verdict }) => verdict)).toEqual(['met', 'met'])
  expect(passes(report)).toBe(true)
  expect(renderTelemetry(report)).toContain(
    `target: ${metrics}, +5.0 % over ${off}, at most +5.0 %: met\ntarget: ${some}, +4.8 % over ${metrics}, at most +5.0 %: met`,
  )
})

test.each([
  ['metrics', { [off]: 100, [metrics]: 106, [some]: 106, [all]: 150 }, ['missed', 'met']],
  ['1 % of the events', { [off]: 100, [metrics]: 100, [some]: 106, [all]: 150 }, ['met', 'missed']],
])('misses the target where %s cost 6 % more', (_, micros, verdicts) => {
  const report = reportTelemetry(nineRounds(micros), shape)

  expect(report.targets.map(({ verdict }) => verdict)).toEqual(verdicts)
  expect(passes(report)).toBe(false)
  expect(renderTelemetry(report)).toContain('missed')
})

test('judges by the median: four disturbed rounds of nine decide nothing', () => {
  const calm = nineRounds({ [off]: 100, [metrics]: 102, [some]: 103, [all]: 150 })
  const disturbed = calm.map((drain, index) => (index < 16 && drain.contender !== off ? doubled(drain) : drain))

  expect(passes(reportTelemetry(disturbed, shape))).toBe(true)
})

test('says nothing of targets after eight rounds', () => {
  const few = Array.from({ length: 8 }, () => roundOf({ [off]: 100, [metrics]: 100, [some]: 100, [all]: 100 })).flat()

  const report = reportTelemetry(few, { ...shape, rounds: 8 })

  expect(report.targets.map(({ verdict }) => verdict)).toEqual(['too few rounds', 'too few rounds'])
  expect(passes(report)).toBe(false)
})

test('gives no figures where an event was lost', () => {
  const [first, ...rest] = nineRounds({ [off]: 100, [metrics]: 100, [some]: 100, [all]: 100 })

  const report = reportTelemetry([{ ...(first as Drain), faults: ['one is missing'] }, ...rest], shape)

  expect(report).toMatchObject({ faults: [`${off}: one is missing`], costs: [], targets: [] })
  expect(passes(report)).toBe(false)
  expect(renderTelemetry(report)).toContain('NO FIGURES')
})

test('names the machine, the versions and the shape of the backlog', () => {
  const report = reportTelemetry(nineRounds({ [off]: 100, [metrics]: 100, [some]: 100, [all]: 100 }), shape)
  const text = renderTelemetry(report)

  for (const part of ['1,000 events', '9 rounds', 'cores', `Node ${process.versions.node}`, 'Postgres', 'Kafka'])
    expect(text).toContain(part)
  for (const name of ['kafkajs', 'pg', 'knex', '@opentelemetry/sdk-trace'])
    expect(report.conditions.versions[name]).toMatch(/^\d+\.\d+\.\d+$/)
})

function doubled(drain: Drain): Drain {
  return { ...drain, cpuMicrosPerEvent: 2 * drain.cpuMicrosPerEvent }
}
