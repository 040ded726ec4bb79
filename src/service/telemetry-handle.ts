/**
 * The rest of the service's way to this thread's telemetry. Works, and does
 * nothing, where the preload did not start it: in tests, or when disabled.
 */
import { readTelemetryConfig } from './telemetry-config.ts'

/** One thread's telemetry. */
export interface Telemetry {
  collectMetrics(): Promise<string>
  unpatchedModules(expected: readonly string[]): string[]
  onProblem(listener: (problem: string) => void): void
  shutdown(): Promise<void>
}

// A symbol of the global registry: the preload and the service may meet this file under two addresses.
const KEY = Symbol.for('graphql-outbox.telemetry')
const registry = globalThis as { [KEY]?: Telemetry }

/** Makes `telemetry` this thread's. Called once, by the preload. */
export function publishTelemetry(telemetry: Telemetry): void {
  registry[KEY] = telemetry
}

/** All threads' metrics as Prometheus text, for `/metrics`. Main thread only; empty elsewhere. Never rejects for lack of an answer: a silent thread's last counts stand. */
export async function collectMetrics(): Promise<string> {
  return (await registry[KEY]?.collectMetrics()) ?? ''
}

const WITHOUT_TELEMETRY =
  'Telemetry is off in this thread: no metrics and no traces of it. Start with node --import ./src/service/telemetry.ts src/service/main.ts, and let threads inherit that'

/** Milliseconds after which everything that a thread needs has been loaded. */
const LOADED_AFTER_MS = 5_000

/**
 * Tells what telemetry has to complain of, from now on, one sentence each: that
 * nobody has started it though nobody has switched it off, a collector that is
 * away, or a module of `expected` that is not instrumented some seconds after
 * the start. Once a thread.
 */
export function watchTelemetry(expected: readonly string[], listener: (problem: string) => void): void {
  const telemetry = registry[KEY]
  if (!telemetry) {
    if (!readTelemetryConfig().disabled) listener(WITHOUT_TELEMETRY)
    return
  }
  telemetry.onProblem(listener)
  setTimeout(() => {
    for (const name of telemetry.unpatchedModules(expected)) {
      listener(`Telemetry: ${name} is not instrumented, so its spans are missing; start with --import telemetry.ts`)
    }
  }, LOADED_AFTER_MS).unref()
}

/** Exports what is left and ends telemetry, within 3 s. The last thing a thread does: returning or exiting exports nothing. */
export async function shutdownTelemetry(): Promise<void> {
  await registry[KEY]?.shutdown()
}
