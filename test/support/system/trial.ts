/** Breaks something under load, lets everything calm down, and judges all that has happened since the beginning. */
import { join } from 'node:path'
import { checkHistory, type Verdict } from '../../../src/messaging/testing/history/check-history.ts'
import type { HistoryEntry } from '../../../src/messaging/testing/history/evidence.ts'
import { readHistory, recordHistory } from '../../../src/messaging/testing/history/recorder.ts'
import { caughtUp, collectEvidence, type EvidenceOptions } from './evidence.ts'
import { type Load, startLoad } from './load.ts'
import type { Service } from './service.ts'

export interface TrialOptions extends Pick<EvidenceOptions, 'db' | 'brokers'> {
  /** Where histories go. */
  readonly dir: string
  /** All that must be ready before the judgement; the first has the API. */
  readonly services: readonly [Service, ...Service[]]
  /** Milliseconds for everything to calm down. @defaultValue 120_000 */
  readonly calmMs?: number
}

/** What a trial has shown. */
export interface Trialed {
  readonly verdict: Verdict
  /** What clients and nemesis have said during this trial. */
  readonly history: readonly HistoryEntry[]
}

export interface Trials {
  /** Runs `during` under load as the fault `name`, which is unique. `during` returns when it has mended what it broke. */
  run(name: string, during: (load: Load) => Promise<void>): Promise<Trialed>
}

/** Trials on one set of servers, each judged together with those before it. */
export function createTrials({ db, brokers, dir, services, calmMs = 120_000 }: TrialOptions): Trials {
  const historyFiles: string[] = []
  let disturbances = 0

  return {
    async run(name, during) {
      const file = join(dir, `${name.replaceAll(' ', '-')}.jsonl`)
      historyFiles.push(file)
      using history = recordHistory(file)
      const load = startLoad({ urls: [services[0].url], history, clients: 4, pauseMs: 20 })
      try {
        await load.reached(50)
        const fault = history.invoke('nemesis', name)
        disturbances += 1
        await during(load)
        fault.ok()
      } finally {
        await load.stop()
      }
      await Promise.all(services.map((service) => service.until(true, { withinMs: calmMs })))
      await caughtUp(db, calmMs)

      const evidence = await collectEvidence({ db, brokers, historyFiles, partitionCounts: [8], disturbances })
      return { verdict: checkHistory(evidence, { keep: 3 }), history: await readHistory([file]) }
    },
  }
}

/** What to expect of a verdict: that it is `valid`, and nothing else. */
export const VALID = { verdict: 'valid', doubts: [], violations: [] } as const

/** The codes with which mutations were answered that did not succeed. */
export function codesIn(history: readonly HistoryEntry[]): ReadonlySet<string> {
  return new Set(history.flatMap(({ detail }) => (detail?.codes as string[] | undefined) ?? []))
}
