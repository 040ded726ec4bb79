/** What telemetry costs the relay: the same backlog with none, with metrics alone, and with a share of the events traced. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { type Contender, type Ground, ours, type Started } from './contenders.ts'
import type { Drain } from './drain.ts'
import type { RelayProcessCommand, RelayProcessData } from './relay-process.ts'
import { type Spread, spreadOf } from './statistics.ts'

/**
 * Events that come before those that are counted. A relay's code is compiled
 * again and again while it is new, which costs as much as publishing some
 * thousands of events, and never the same.
 */
export const TELEMETRY_WARM_EVENTS = 20_000

/** A collector that runs. */
export interface Collector extends AsyncDisposable {
  readonly url: string
}

/** Starts a collector that keeps nothing. */
export async function startCollector(): Promise<Collector> {
  const child = fork(fileURLToPath(new URL('./collector-worker.ts', import.meta.url)))
  const [port] = (await once(child, 'message')) as [number]
  return {
    url: `http://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      child.disconnect()
      await once(child, 'exit')
    },
  }
}

/** The relay without telemetry first, then with more and more of it. */
export function telemetryContenders(collector: string): readonly Contender[] {
  const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: collector }
  // Unsampled context rides along everywhere, so that all of them write the same records.
  return [
    { ...ours, name: 'telemetry off', sampledPercent: 0, start: (ground) => startApart(ground, null) },
    { ...ours, name: 'metrics alone', sampledPercent: 0, start: (ground) => startApart(ground, {}) },
    { ...ours, name: '1 % of the events traced', sampledPercent: 1, start: (ground) => startApart(ground, traces) },
    { ...ours, name: 'every event traced', sampledPercent: 100, start: (ground) => startApart(ground, traces) },
  ]
}

/** Starts a relay process, with `telemetry` for its environment and the service's preload, or with `null` without. */
async function startApart(
  { databaseUrl, brokers, topic }: Ground,
  telemetry: Readonly<Record<string, string>> | null,
): Promise<Started> {
  const preload = new URL('../src/service/telemetry.ts', import.meta.url).href
  const child = fork(fileURLToPath(new URL('./relay-process.ts', import.meta.url)), {
    execArgv: [...process.execArgv, ...(telemetry ? ['--import', preload] : [])],
    env: { ...process.env, ROLES: 'relay', ...telemetry },
  })
  const exited = once(child, 'exit')
  async function ask(message: RelayProcessData | RelayProcessCommand): Promise<number> {
    child.send(message)
    const [cpuMicros] = await Promise.race([
      once(child, 'message'),
      exited.then(() => {
        throw new Error('The relay process has ended by itself')
      }),
    ])
    return cpuMicros
  }
  await ask({ databaseUrl, brokers, topic })

  let atItsEnd: Promise<number> | null = null
  return {
    wake: () => void child.send('wake' satisfies RelayProcessCommand),
    cpuMicros: async () => await (atItsEnd ?? ask('measure')),
    async stop() {
      atItsEnd ??= ask('stop')
      await atItsEnd
      await exited
    },
  }
}

export interface TelemetryCost {
  readonly contender: string
  /** Microseconds of CPU of the relay's process, an event, until everything was exported. */
  readonly cpuMicrosPerEvent: Spread
  /** What of that is more than without telemetry, round by round. */
  readonly moreMicrosPerEvent: Spread
  /** The same as a share of what it takes without. */
  readonly moreShare: Spread
  readonly rate: Spread
}

/** Sums `drains` up; the first contender is what the others are compared with. Faulty rounds are the caller's to refuse. */
export function reportTelemetry(drains: readonly Drain[]): readonly TelemetryCost[] {
  const names = [...new Set(drains.map(({ contender }) => contender))].sort((a, b) => orderOf(a) - orderOf(b))
  const of = (name: string) => drains.filter(({ contender }) => contender === name)
  const [without = ''] = names
  const base = of(without).map(({ cpuMicrosPerEvent }) => cpuMicrosPerEvent)
  return names.map((contender) => {
    const cpu = of(contender).map(({ cpuMicrosPerEvent }) => cpuMicrosPerEvent)
    const more = cpu.map((micros, round) => micros - (base[round] ?? Number.NaN))
    return {
      contender,
      cpuMicrosPerEvent: spreadOf(cpu),
      moreMicrosPerEvent: spreadOf(more),
      moreShare: spreadOf(more.map((micros, round) => micros / (base[round] ?? Number.NaN))),
      rate: spreadOf(of(contender).map(({ events, seconds }) => events / seconds)),
    }
  })
}

/** The report as text for a terminal. */
export function renderTelemetry(costs: readonly TelemetryCost[], rounds: number): string {
  return [
    `What telemetry costs the relay, ${rounds} rounds by turns; medians, and in brackets the quartiles of the paired differences.`,
    ...costs.map(({ contender, cpuMicrosPerEvent, moreMicrosPerEvent, moreShare, rate }, index) => {
      const cells = [
        contender.padEnd(26),
        `${cpuMicrosPerEvent.median.toFixed(1)} µs CPU/event`.padStart(20),
        `${Math.round(rate.median).toLocaleString('en-US')} events/s`.padStart(18),
      ]
      if (index === 0) return cells.join(' ')
      const { median, lowerQuartile, upperQuartile } = moreMicrosPerEvent
      const quartiles = `(${lowerQuartile.toFixed(1)} to ${upperQuartile.toFixed(1)})`
      return [...cells, `  ${signed(median)} µs ${quartiles}, ${signed(moreShare.median * 100)} %`].join(' ')
    }),
  ].join('\n')
}

const ORDER = ['telemetry off', 'metrics alone', '1 % of the events traced', 'every event traced']

function orderOf(name: string): number {
  return ORDER.indexOf(name)
}

function signed(value: number): string {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(1)}`
}
