/** One torture: load, faults, calm, verdict. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { checkHistory } from '../../src/messaging/testing/history/check-history.ts'
import { recordHistory } from '../../src/messaging/testing/history/recorder.ts'
import { caughtUp, collectEvidence } from '../support/system/evidence.ts'
import { type Load, startLoad } from '../support/system/load.ts'
import { type Arena, PARTITIONS, servicesOf, startArena } from './arena.ts'
import { rampage } from './nemesis.ts'
import { attributeDuplicates, renderReport, type TortureReport } from './report.ts'

export interface TortureOptions {
  readonly seed: number
  readonly minutes: number
  readonly faults: readonly string[]
  readonly relays: number
  readonly consumers: number
  readonly clients: number
  /** Everything is left there: logs, history, report. */
  readonly dir: string
  readonly progress: (line: string) => void
}

/** Milliseconds between two lines on how things stand. */
const STATUS_MS = 10_000

/** Milliseconds in which everything has to calm down at the end. */
const CALM_MS = 180_000

export async function torture(options: TortureOptions): Promise<TortureReport> {
  const { seed, minutes, dir, progress } = options
  await using arena = await startArena(options)
  const historyFile = join(dir, 'history.jsonl')
  using history = recordHistory(historyFile)
  const from = performance.now()
  const load = startLoad({ urls: arena.apis.map(({ url }) => url), history, clients: options.clients, pauseMs: 5 })
  const status = setInterval(() => void say(arena, load, progress), STATUS_MS)
  const raged = await rampage({ ...options, arena, history, names: options.faults, until: from + minutes * 60_000 })
  clearInterval(status)
  const okPerSecond = load.okCount / ((performance.now() - from) / 1_000)
  await load.stop()

  progress('waiting for calm')
  const caughtUpMs = await calm(arena).catch((error: unknown) => {
    progress(String(error))
    return null
  })
  progress('reading tables and topics')
  const evidence = await collectEvidence({
    db: arena.db,
    brokers: arena.brokers,
    historyFiles: [historyFile],
    partitionCounts: [PARTITIONS],
    disturbances: raged.disturbances,
    recoveries: [...raged.recoveries, { name: 'the end', tookMs: caughtUpMs, withinMs: CALM_MS }],
  })
  const report: TortureReport = {
    seed,
    minutes,
    verdict: checkHistory(evidence),
    duplicatesByCause: attributeDuplicates(evidence),
    recoveries: raged.recoveries,
    caughtUpMs,
    failedFaults: raged.failed,
    okPerSecond,
  }
  await writeFile(join(dir, 'report.json'), `${JSON.stringify(report, null, 2)}\n`)
  await writeFile(join(dir, 'report.txt'), `${renderReport(report)}\n`)
  return report
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
