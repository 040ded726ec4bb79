/** Loaded into every thread of a service under test: a relay thread stands still for as long as the file `TEST_WEDGE_FILE` exists. */
import { existsSync } from 'node:fs'
import { isMainThread, workerData } from 'node:worker_threads'

const file = process.env.TEST_WEDGE_FILE ?? ''
const { telemetry } = (isMainThread ? {} : (workerData ?? {})) as { telemetry?: { instance: string } }

if (telemetry?.instance.startsWith('relay-')) {
  const nobody = new Int32Array(new SharedArrayBuffer(4))
  setInterval(() => {
    while (existsSync(file)) Atomics.wait(nobody, 0, 0, 100)
  }, 200).unref()
}
