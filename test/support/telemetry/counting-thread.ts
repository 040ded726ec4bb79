/** A worker thread that counts a thousand published events and then waits to be stopped. */
import { parentPort } from 'node:worker_threads'
import { getInstruments } from '../../../src/messaging/telemetry/metrics.ts'
import { shutdownTelemetry } from '../../../src/service/telemetry-handle.ts'

const { published } = getInstruments()
for (let n = 0; n < 1_000; n++) published.add(1)
parentPort?.on('message', async () => {
  await shutdownTelemetry()
  process.exit()
})
parentPort?.postMessage('counted')
