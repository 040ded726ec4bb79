/** A process with the preload that appends `TEST_COUNT` orders at once, exports what is left, and ends. */
import { shutdownTelemetry } from '../../../src/service/telemetry-handle.ts'
import { appendBurst } from './burst.ts'

const { TEST_COUNT, TEST_DATABASE_URL = '' } = process.env
await appendBurst(TEST_DATABASE_URL, Number(TEST_COUNT))
await shutdownTelemetry()
process.exit()
