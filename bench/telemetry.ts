/** What telemetry costs the relay: the same backlog with none, with metrics alone, and with a share of the events traced. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { type Contender, type Ground, ours, type Started } from './contenders.ts'
import type { RelayProcessCommand, RelayProcessData } from './relay-process.ts'
import { contenderNames } from './telemetry-report.ts'

/**
 * How it is measured. What the compiler and the collector of garbage make of a
 * process differs from one to the next by more than metrics cost, however long
 * it runs: many short rounds, each of new processes, tell more than a few long ones.
 */
export const telemetryDefaults = {
  rounds: 40,
  events: 20_000,
  /** Events before those that are counted: new code is compiled again and again, which costs as much as some thousands of events. */
  warmEvents: 15_000,
  /** Turns in which a setting drains its backlog: the machine changes from minute to minute by more than telemetry costs. */
  turns: 2,
} as const

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
    { ...ours, name: contenderNames.off, sampledPercent: 0, start: (ground) => startApart(ground, null) },
    { ...ours, name: contenderNames.metrics, sampledPercent: 0, start: (ground) => startApart(ground, {}) },
    { ...ours, name: contenderNames.some, sampledPercent: 1, start: (ground) => startApart(ground, traces) },
    { ...ours, name: contenderNames.all, sampledPercent: 100, start: (ground) => startApart(ground, traces) },
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
    flush: async () => void (await ask('flush')),
    wake: () => void child.send('wake' satisfies RelayProcessCommand),
    cpuMicros: async () => await (atItsEnd ?? ask('measure')),
    async stop() {
      atItsEnd ??= ask('stop')
      await atItsEnd
      await exited
    },
  }
}
