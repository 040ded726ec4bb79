/** What a torture has shown, as data and as text. Times in milliseconds. */
import type { Verdict } from '../../src/messaging/testing/history/check-history.ts'
import type { CopiesByCause } from './duplicates.ts'
import { clock, type Recovery, type RecoveryLimits, type RecoveryTimes, timesOf } from './recoveries.ts'
import type { Waits } from './steadiness.ts'

export interface TortureReport {
  readonly seed: number
  readonly minutes: number
  /** Authentications at Kafka where all was over TLS, renewed ones included; `null` where all was in clear. */
  readonly authentications: number | null
  readonly machine: { readonly cores: number; readonly loadAverages: readonly [before: number, after: number] }
  readonly verdict: Verdict
  /** Over the whole run, faults included. */
  readonly perSecond: { readonly mutationsOk: number; readonly events: number }
  readonly copies: CopiesByCause
  /** Partition counts of the topic that were in force, one after the other. */
  readonly partitionCounts: readonly number[]
  readonly steady: {
    /** No wait was longer while it was steady. */
    readonly bounds: Waits
    /** For so long at least. */
    readonly holdMs: number
    /** Whether the bounds are the usual ones: otherwise the machine was slower than they are before anything was broken. */
    readonly usual: boolean
  }
  readonly limits: RecoveryLimits
  readonly recoveries: readonly Recovery[]
  readonly recoveryByFault: Readonly<Record<string, RecoveryTimes>>
  /** From the last fault until nothing was pending or unprocessed; `null` when it did not come to that. */
  readonly caughtUpMs: number | null
  /** Faults that could not be inflicted. */
  readonly failedFaults: readonly string[]
  /** Faults that were asked for and that this machine has no means for. */
  readonly missingFaults: readonly string[]
}

/** The report for a reader. */
export function renderReport(report: TortureReport): string {
  const { verdict, perSecond, machine, authentications } = report
  const { counts } = verdict
  const { ok, fail, info } = counts.operations
  const [before, after] = machine.loadAverages.map((load) => load.toFixed(1))
  return [
    `Torture with seed ${report.seed}, ${report.minutes} minutes${authentications === null ? '' : ', --secure'}: ${verdict.verdict.toUpperCase()}`,
    '',
    authentications === null
      ? 'Kafka and Postgres in clear.'
      : `Kafka over TLS with SCRAM-SHA-512, ${authentications} authentications; Postgres over TLS, verified in full.`,
    `Machine: ${machine.cores} cores, load average ${before} before and ${after} after.`,
    `Load: ${perSecond.mutationsOk.toFixed(0)} mutations ok and ${perSecond.events.toFixed(0)} events a second; ${ok} ok, ${fail} failed for certain, ${info} unknown.`,
    `Events: ${counts.committed} committed, ${counts.records} records, ${counts.duplicates} of them further copies, ${counts.setAside} set aside.`,
    `Further copies by cause: ${list(report.copies.explained)}; ${report.copies.unexplained === 0 ? 'all are explained' : `UNEXPLAINED ${report.copies.unexplained}`}.`,
    `Partitions in force: ${report.partitionCounts.join(', then ')}.`,
    `Faults that landed: ${list(counts.faults)}.`,
    '',
    ...renderRecoveries(report),
    ...report.missingFaults.map((missing) => `NOT TESTED HERE: ${missing}`),
    ...report.failedFaults.map((failed) => `Not inflicted: ${failed}`),
    ...verdict.doubts.map((doubt) => `Proves nothing: ${doubt}.`),
    ...Object.entries(verdict.violationCounts).map(([invariant, count]) => `${invariant} is broken ${count} times:`),
    ...verdict.violations.flatMap(({ invariant, problem, around }) => [
      `  ${invariant}: ${problem}`,
      ...around.map(({ at, actor, kind, name }) => `      ${new Date(at).toISOString()} ${actor} ${name}: ${kind}`),
    ]),
  ].join('\n')
}

function renderRecoveries({ recoveries, recoveryByFault, limits, steady, caughtUpMs }: TortureReport): string[] {
  const { broker, effect, answer } = steady.bounds
  const all = timesOf(recoveries, limits.steadyMs)
  const row = (name: string, { landed, medianMs, longestMs }: RecoveryTimes) =>
    `  ${name.padEnd(20)} ${String(landed).padStart(6)} ${seconds(medianMs).padStart(9)} ${seconds(longestMs).padStart(9)}`
  return [
    `From the end of a fault until the system was steady: for ${seconds(steady.holdMs)} no event pending longer than ${seconds(broker)}, none without its effect longer than ${seconds(effect)}, no client without an answer longer than ${seconds(answer)}.`,
    ...(steady.usual ? [] : ['These are no usual bounds: the machine was slower before anything was broken.']),
    `  ${'fault'.padEnd(20)} landed    median   longest`,
    ...Object.entries(recoveryByFault).map(([name, times]) => row(name, times)),
    row('any', all),
    `${all.landed - all.late} of ${all.landed} within ${seconds(limits.steadyMs)}. The backlog was gone ${seconds(caughtUpMs)} after the end.`,
    ...recoveries.filter(({ steadyMs }) => (steadyMs ?? Number.POSITIVE_INFINITY) > limits.steadyMs).map(renderLate),
    '',
  ]
}

function renderLate({ faults, endedMs, steadyMs, last, readyMs, backlog }: Recovery): string {
  const after = `${faults.join(' + ')}, which ended at ${clock(endedMs)}`
  return `LATE: ${after}: steady after ${seconds(steadyMs)}, ready after ${seconds(readyMs)}; last to come back: ${last.join(', ')}; backlog up to ${backlog}.`
}

function list(counts: Readonly<Record<string, number>>): string {
  const entries = Object.entries(counts).sort(([, a], [, b]) => b - a)
  return entries.length === 0 ? 'none' : entries.map(([name, count]) => `${name} ${count}`).join(', ')
}

function seconds(ms: number | null): string {
  return ms === null ? 'never' : `${(ms / 1_000).toFixed(1)} s`
}
