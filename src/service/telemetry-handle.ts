/**
 * The rest of the service's way to this thread's telemetry. Works, and does
 * nothing, where the preload did not start it: in tests, or when disabled.
 */
import type { TelemetryConfig } from './telemetry-config.ts'

/** One thread's telemetry. */
export interface Telemetry {
  readonly config: TelemetryConfig
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

/** This thread's telemetry settings; `null` where it was not started. */
export function telemetryConfig(): TelemetryConfig | null {
  return registry[KEY]?.config ?? null
}

/** All threads' metrics as Prometheus text, for `/metrics`. Main thread only; empty elsewhere. Never rejects for lack of an answer: a silent thread's last counts stand. */
export async function collectMetrics(): Promise<string> {
  return (await registry[KEY]?.collectMetrics()) ?? ''
}

/**
 * Tells what telemetry has to complain of, now and later, one sentence each: a
 * collector that is away, or a module of `expected` that was loaded without
 * being instrumented. Call it once, when the thread's part has started.
 */
export function watchTelemetry(expected: readonly string[], listener: (problem: string) => void): void {
  const telemetry = registry[KEY]
  if (!telemetry) return
  telemetry.onProblem(listener)
  for (const name of telemetry.unpatchedModules(expected)) {
    listener(
      `Telemetry: ${name} is not instrumented; its spans are missing. Start with --import src/service/telemetry.ts`,
    )
  }
}

/** Exports what is left and ends telemetry, within 5 s. The last thing a thread does: returning or exiting exports nothing. */
export async function shutdownTelemetry(): Promise<void> {
  await registry[KEY]?.shutdown()
}
