/** A process with the preload that starts the service's threads without; ends when both are up. */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { TelemetryIdentity } from '../../../src/service/telemetry-identity.ts'

function start(entry: string, telemetry: TelemetryIdentity): Worker {
  return new Worker(new URL(`../../../src/service/${entry}`, import.meta.url), {
    workerData: { telemetry },
    execArgv: [],
  })
}
const workers = [
  start('relay-worker.ts', { serviceName: 'outbox-relay', instance: 'relay-0' }),
  start('consumer-worker.ts', { serviceName: 'orders-summary', instance: 'consumer' }),
]
// Lines are written at once: what a thread has to say of its start is out before its first word to us.
await Promise.all(workers.map((worker) => once(worker, 'message')))
process.exit()
