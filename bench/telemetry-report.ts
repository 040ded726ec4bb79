/** What the benchmark of telemetry says: figures of paired rounds, and whether they are within what telemetry may cost. */
import type { Drain } from './drain.ts'
import { type Conditions, conditionsOf, renderMachine, renderShape, type Shape, whole } from './report.ts'
import { type Spread, spreadOf } from './statistics.ts'

/** Who drains, from none of telemetry to all of it. */
export const contenderNames = {
  off: 'telemetry off',
  metrics: 'metrics alone',
  some: '1 % of the events traced',
  all: 'every event traced',
} as const

/** Of these the first may take so much more CPU for an event than the second, as a share, in the median round. */
const limits = [
  { contender: contenderNames.metrics, over: contenderNames.off, limit: 0.05 },
  { contender: contenderNames.some, over: contenderNames.metrics, limit: 0.05 },
] as const

/** Rounds below which a median says nothing. */
const LEAST_ROUNDS = 9

/** How much more one contender takes than another, round by round. */
export interface Difference {
  readonly over: string
  /** Microseconds for an event. */
  readonly micros: Spread
  /** The same as a share of what the other takes. */
  readonly share: Spread
}

export interface TelemetryCost {
  readonly contender: string
  /** Microseconds of CPU of the relay's process, an event, until everything was exported. */
  readonly cpuMicrosPerEvent: Spread
  /** Events a second. */
  readonly rate: Spread
  /** Over no telemetry, and over metrics alone, where it has more than those. */
  readonly differences: readonly Difference[]
}

export interface Target {
  readonly contender: string
  readonly over: string
  readonly limit: number
  readonly median: number
  readonly verdict: 'met' | 'missed' | 'too few rounds'
}

export interface TelemetryReport {
  readonly conditions: Conditions
  /** Why there are no figures; empty where there are. */
  readonly faults: readonly string[]
  readonly costs: readonly TelemetryCost[]
  readonly targets: readonly Target[]
}

/** Sums `drains` up, those of each contender in the order of their rounds. One that lost, doubled or reordered an event leaves no figures at all. */
export function reportTelemetry(drains: readonly Drain[], shape: Shape): TelemetryReport {
  const conditions = conditionsOf(shape, [
    '@opentelemetry/api',
    '@opentelemetry/sdk-metrics',
    '@opentelemetry/sdk-trace',
  ])
  const faults = drains.flatMap(({ contender, faults: found }) => found.map((fault) => `${contender}: ${fault}`))
  if (faults.length > 0) return { conditions, faults, costs: [], targets: [] }

  const of = (name: string) => drains.filter(({ contender }) => contender === name)
  const cpuOf = (name: string) => of(name).map(({ cpuMicrosPerEvent }) => cpuMicrosPerEvent)
  function difference(contender: string, over: string): Difference {
    const base = cpuOf(over)
    const more = cpuOf(contender).map((micros, round) => micros - (base[round] ?? Number.NaN))
    const shares = more.map((micros, round) => micros / (base[round] ?? Number.NaN))
    return { over, micros: spreadOf(more), share: spreadOf(shares) }
  }
  const { off, metrics, some, all } = contenderNames
  const over: Readonly<Record<string, readonly string[]>> = {
    [off]: [],
    [metrics]: [off],
    [some]: [off, metrics],
    [all]: [off, metrics],
  }
  return {
    conditions,
    faults,
    costs: Object.entries(over).map(([contender, others]) => ({
      contender,
      cpuMicrosPerEvent: spreadOf(cpuOf(contender)),
      rate: spreadOf(of(contender).map(({ events, seconds }) => events / seconds)),
      differences: others.map((other) => difference(contender, other)),
    })),
    targets: limits.map(({ limit, ...pair }) => {
      const { median } = difference(pair.contender, pair.over).share
      const enough = of(pair.contender).length >= LEAST_ROUNDS
      return { ...pair, limit, median, verdict: !enough ? 'too few rounds' : median <= limit ? 'met' : 'missed' }
    }),
  }
}

/** Whether it says that everything was published as it should, and that telemetry costs no more than it may. */
export function passes({ faults, targets }: TelemetryReport): boolean {
  return faults.length === 0 && targets.every(({ verdict }) => verdict === 'met')
}

/** The report as text for a terminal. */
export function renderTelemetry({ conditions, faults, costs, targets }: TelemetryReport): string {
  return [
    `What telemetry costs the relay, draining ${renderShape(conditions)}; medians,`,
    'and in brackets the quartiles of the paired differences.',
    renderMachine(conditions),
    '',
    ...(faults.length > 0 ? ['NO FIGURES, the gate failed', ...faults.map((fault) => `  ${fault}`)] : []),
    ...costs.flatMap(renderCost),
    ...targets.map(renderTarget),
  ].join('\n')
}

function renderCost({ contender, cpuMicrosPerEvent, rate, differences }: TelemetryCost): string[] {
  const cpu = `${cpuMicrosPerEvent.median.toFixed(1)} µs CPU/event`
  return [
    `${contender.padEnd(26)} ${cpu.padStart(20)} ${`${whole(rate.median)} events/s`.padStart(18)}`,
    ...differences.map(({ over, micros, share }) => {
      const ofShare = renderSpread(share, (value) => `${signed(value * 100)} %`)
      return `  over ${over.padEnd(19)} ${renderSpread(micros, (value) => `${signed(value)} µs`)}, ${ofShare}`
    }),
  ]
}

function renderSpread({ median, lowerQuartile, upperQuartile }: Spread, render: (value: number) => string): string {
  return `${render(median)} (${render(lowerQuartile)} to ${render(upperQuartile)})`
}

function renderTarget({ contender, over, limit, median, verdict }: Target): string {
  return `target: ${contender}, ${signed(median * 100)} % over ${over}, at most ${signed(limit * 100)} %: ${verdict}`
}

function signed(value: number): string {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(1)}`
}
