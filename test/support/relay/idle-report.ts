/** What a relay worker says that has nothing in hand and nothing to tell. */
import type { WorkerReport } from '../../../src/messaging/relay/protocol.ts'

export const idleReport: WorkerReport = {
  inHandCount: 0,
  publishedCount: 0,
  paused: [],
  heldKeys: [],
  heldKeyCount: 0,
  databaseProblem: null,
  brokerProblem: null,
  warnings: [],
}
