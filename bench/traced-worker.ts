/** The thread of our relay with telemetry, as the service's preload starts it; what is instrumented is loaded afterwards. */
import { workerData } from 'node:worker_threads'
import { readTelemetryConfig } from '../src/service/telemetry-config.ts'
import { shutdownTelemetry } from '../src/service/telemetry-handle.ts'
import { startTelemetry } from '../src/service/telemetry-start.ts'
import type { OurWorkerData } from './our-worker.ts'

/** What the thread is told. */
export interface TracedWorkerData extends OurWorkerData {
  /** Where spans go, OTLP over HTTP; `null` measures and traces nothing. */
  readonly collector: string | null
}

const { collector } = workerData as TracedWorkerData
// The thread's own copy, from which the exporter takes it.
if (collector !== null) process.env.OTEL_EXPORTER_OTLP_ENDPOINT = collector
startTelemetry(readTelemetryConfig(), { serviceName: 'outbox-relay', instance: 'relay-0' })

await import('./our-worker.ts')
await shutdownTelemetry()
