/**
 * Starts OpenTelemetry in this thread, before anything that it instruments is
 * loaded: `node --import ./src/service/telemetry.ts …`.
 *
 * Worker threads inherit the preload and get an SDK of their own where
 * `workerData.telemetry` says who they are; other threads, such as a logger's
 * transport, stay without.
 */
import { isMainThread, workerData } from 'node:worker_threads'
import { readTelemetryConfig } from './telemetry-config.ts'
import type { TelemetryIdentity } from './telemetry-identity.ts'

const config = readTelemetryConfig()
const identity = isMainThread ? { serviceName: config.mainServiceName, instance: 'main' } : workerIdentity(workerData)

if (identity && !config.disabled) {
  const { startTelemetry } = await import('./telemetry-start.ts')
  startTelemetry(config, identity)
  // Not before: what the library loads is to be patched.
  const { setBatchTraceRatio, setOutboxName, setWaitSpans } = await import('../messaging/index.ts')
  setOutboxName(config.outboxName)
  setBatchTraceRatio(config.batchRatio)
  setWaitSpans(config.waitSpans)
}

function workerIdentity(data: unknown): TelemetryIdentity | null {
  if (typeof data !== 'object' || data === null || !('telemetry' in data)) return null
  return data.telemetry as TelemetryIdentity
}
