/** One torture: load, faults, calm, verdict. */
import { writeFile } from 'node:fs/promises'
import { availableParallelism, loadavg } from 'node:os'
import { join } from 'node:path'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { recordHistory } from '../../src/messaging/testing/history/recorder.ts'
import { caughtUp, collectEvidence } from '../support/system/evidence.ts'
import { type Load, startLoad } from '../support/system/load.ts'
import { type Arena, servicesOf, startArena } from './arena.ts'
import { attributeCopies } from './duplicates.ts'
import { faults } from './faults.ts'
import { rampage } from './nemesis.ts'
import { asEvidence, timesByFault } from './recoveries.ts'
import { renderReport, type TortureReport } from './report.ts'
import { countAuthentications } from './security.ts'
import { holdMs, loosen, STEADY, type Waits } from './steadiness.ts'
import { startWatch, type Watch } from './watch.ts'

export interface TortureOptions {
  readonly seed: number
  readonly minutes: number
  readonly faults: readonly string[]
  readonly relays: number
  readonly consumers: number
  readonly clients: number
  /** Whether the service reaches Kafka over TLS and SCRAM, and Postgres over TLS. */
  readonly secure: boolean
  /** Seconds within which the system must be steady again after the end of a fault. */
  readonly steadyWithin: number
  /** Everything is left there: logs, history, report. */
  readonly dir: string
  readonly progress: (line: string) => void
}

/** Milliseconds between two lines on how things stand. */
const STATUS_MS = 10_000

/** Milliseconds in which everything has to calm down at the end. */
const CALM_MS = 180_000

/** Milliseconds within which every process must say that it is ready after the end of a fault. */
const READY_MS = 60_000

/** Milliseconds that the system has to become steady before anything is broken. */
const SETTLE_MS = 30_000

export async function torture(options: TortureOptions): Promise<TortureReport> {
  const { seed, minutes, dir, progress } = options
  const limits = { steadyMs: options.steadyWithin * 1_000, readyMs: READY_MS }
  const [before = 0] = loadavg()
  await using arena = await startArena(options)
  await using watch = startWatch(arena.postgres.url())
  const historyFile = join(dir, 'history.jsonl')
  using history = recordHistory(historyFile)
  const from = performance.now()
  const load = startLoad({
    urls: arena.apis.map(({ url }) => url),
    history,
    clients: options.clients,
    pauseMs: 5,
    onOk: watch.answered,
  })
  const status = setInterval(() => void say(arena, load, progress), STATUS_MS)
  const bounds = await settle(watch, progress)
  const raged = await rampage({
    ...options,
    arena,
    watch,
    bounds,
    history,
    names: options.faults,
    forMs: minutes * 60_000,
  })
  clearInterval(status)
  const loadSeconds = (performance.now() - from) / 1_000
  await load.stop()

  progress('waiting for calm')
  const caughtUpMs = await calm(arena).catch((error: unknown) => {
    progress(String(error))
    return null
  })
  progress('reading tables and topics')
  const partitionCounts = await countsOf(arena)
  const evidence = await collectEvidence({
    db: arena.db,
    brokers: arena.brokers,
    historyFiles: [historyFile],
    partitionCounts,
    disturbances: raged.disturbances,
    recoveries: [...asEvidence(raged.recoveries, limits), { name: 'the end', tookMs: caughtUpMs, withinMs: CALM_MS }],
  })
  const [after = 0] = loadavg()
  const report: TortureReport = {
    seed,
    minutes,
    authentications: options.secure ? countAuthentications(arena.proxies) : null,
    machine: { cores: availableParallelism(), loadAverages: [before, after] },
    verdict: checkHistory(evidence),
    perSecond: { mutationsOk: load.okCount / loadSeconds, events: evidence.committed.length / loadSeconds },
    copies: attributeCopies(evidence, (name) => faults[name]?.doubles ?? false),
    partitionCounts,
    steady: { bounds, holdMs: holdMs(bounds), usual: bounds === STEADY },
    limits,
    recoveries: raged.recoveries,
    recoveryByFault: timesByFault(raged.recoveries, limits),
    caughtUpMs,
    failedFaults: raged.failed,
    missingFaults: raged.missing,
  }
  await writeFile(join(dir, 'looks.jsonl'), watch.looks.map((look) => `${JSON.stringify(look)}\n`).join(''))
  await writeFile(join(dir, 'report.json'), `${JSON.stringify(report, null, 2)}\n`)
  await writeFile(join(dir, 'report.txt'), `${renderReport(report)}\n`)
  return report
}

/** Waits until the system is steady under load; resolves to what that is on this machine. */
async function settle(watch: Watch, progress: (line: string) => void): Promise<Waits> {
  const from = performance.now()
  if (await watch.steady({ from, bounds: STEADY, withinMs: SETTLE_MS })) return STEADY
  const bounds = loosen(
    STEADY,
    watch.looks.filter(({ at }) => at > performance.now() - SETTLE_MS / 3),
  )
  progress(`not steady before anything is broken: this machine is measured by its own waits, ${JSON.stringify(bounds)}`)
  return bounds
}

/** The partition counts that were in force, one after the other. */
async function countsOf({ db }: Arena): Promise<readonly number[]> {
  const row = await db('topics').where({ topic: 'order.events' }).first('earlier_counts', 'partition_count')
  return [...row.earlier_counts, row.partition_count]
}

/** Milliseconds until nothing is pending and everything is processed, by processes that are ready. */
async function calm(arena: Arena): Promise<number> {
  const from = performance.now()
  await caughtUp(arena.db, CALM_MS)
  await Promise.all(servicesOf(arena).map((service) => service.until(true)))
  return Math.round(performance.now() - from)
}

async function say(arena: Arena, load: Load, progress: (line: string) => void): Promise<void> {
  const pending = await arena
    .db('outbox')
    .whereNull('published_at')
    .count<{ count: string }[]>('* as count')
    .timeout(2_000)
    .then(
      ([row]) => row?.count ?? '?',
      () => 'unknown (Postgres does not answer)',
    )
  progress(`  ${load.okCount} mutations ok, ${pending} events pending`)
}
