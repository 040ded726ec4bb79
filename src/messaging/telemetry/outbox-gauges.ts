/**
 * What the database alone knows, as gauges: backlog, age, held and parked keys,
 * dead letters, the oldest transaction.
 *
 * Read on a beat of its own and never by a scrape, so a scrape is as quick with
 * a slow database as with a fast one, and shows what was last known. Every
 * process with a relay may do it; queries take the maximum.
 */
import type { Knex } from 'knex'
import { systemClock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { type Running, run } from '../lifecycle/running.ts'
import { requireKnown, requireMethods, requireWhole, usePostgres } from '../options.ts'
import { ATTR_OUTBOX, outboxName } from './attributes.ts'
import { getInstruments } from './metrics.ts'
import { selectOutboxState } from './queries.ts'
import { untraced } from './tracing.ts'

export interface OutboxGaugesOptions {
  /** A pool of the outbox's database. Stays the caller's. */
  readonly db: Knex
  /**
   * Milliseconds between two readings. Shorter shows a backlog sooner and costs
   * the database one short transaction each time.
   * @defaultValue 15_000
   */
  readonly intervalMs?: number
  readonly logger: Logger
}

/** Milliseconds that a reading may outlast the stop. */
const GRACE_MS = 2_000

/** Reads and records at once, and then on its beat, until stopped. A reading that fails leaves the gauges as they were. */
export function startOutboxGauges(options: OutboxGaugesOptions): Running {
  requireKnown(options, { db: true, intervalMs: true, logger: true })
  const { db, intervalMs = 15_000, logger } = options
  usePostgres(db)
  requireWhole('intervalMs', intervalMs)
  requireMethods('logger', logger, ['warn'], 'a logger with debug, info, warn and error')
  return run(
    async ({ draining }) => {
      startAtZero()
      while (!draining.aborted) {
        await recordOutboxState(db).catch((error: unknown) => {
          logger.warn({ err: error }, 'The state of the outbox could not be read; its gauges show what was last known')
        })
        await systemClock.pause(intervalMs, draining)
      }
    },
    { graceMs: GRACE_MS },
  )
}

/** A counter that appears with its first fault is no increase to Prometheus: that fault would go unseen. */
function startAtZero(): void {
  const { fencedWrites, threadRestarts, threadTerminations } = getInstruments()
  for (const counter of [fencedWrites, threadRestarts, threadTerminations])
    counter.add(0, { [ATTR_OUTBOX]: outboxName() })
}

/** One reading. Rejects with the database's error, and then records nothing. */
export async function recordOutboxState(db: Knex): Promise<void> {
  const state = await untraced(() => selectOutboxState(db))
  const instruments = getInstruments()
  const attributes = { [ATTR_OUTBOX]: outboxName() }
  instruments.pendingCount.record(state.pendingCount, attributes)
  instruments.pendingOldestAge.record(state.oldestPendingSeconds, attributes)
  instruments.heldKeys.record(state.heldKeyCount, attributes)
  instruments.parkedKeys.record(state.parkedKeyCount, attributes)
  instruments.deadLetterCount.record(state.deadLetterCount, attributes)
  instruments.dedupeStored.record(state.processedEstimate, attributes)
  instruments.oldestTransactionAge.record(state.oldestTransactionSeconds, attributes)
}
