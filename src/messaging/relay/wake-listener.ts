/**
 * Hears of commits in other processes: LISTEN on a connection of its own.
 *
 * A hint and no more. A connection that is frozen, or that a pooler hands to
 * others, is found out by a probe; the relay's poll finds the events meanwhile.
 */
import type { Knex } from 'knex'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { closeConnection, openConnection, type PostgresConnection } from '../outbox/connection.ts'
import { lanesOfBitmap, WAKE_CHANNEL } from '../outbox/wake-notifier.ts'
import { untraced } from '../telemetry/tracing.ts'

/** Milliseconds between two probes. */
const PROBE_MS = 10_000
/** Milliseconds that an answer may take. */
const ANSWER_MS = 3_000
/** Milliseconds without a connection after a failure. */
const RECONNECT_MS = 1_000

export interface WakeListenerOptions {
  readonly db: Knex
  readonly clock: Clock
  readonly logger: Logger
  readonly onWake: (lanes: readonly number[]) => void
}

export class WakeListener {
  /** Whether notifications arrive. */
  listening = false
  readonly #options: WakeListenerOptions

  constructor(options: WakeListenerOptions) {
    this.#options = options
  }

  /** Listens until `signal` aborts. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options
    await untraced(async () => {
      while (!signal.aborted) {
        await this.#listen(signal).catch(() => {
          if (this.listening) logger.warn({}, 'notifications are lost; polling until they are back')
        })
        this.listening = false
        await clock.pause(RECONNECT_MS, signal)
      }
    })
  }

  async #listen(signal: AbortSignal): Promise<void> {
    const { db, clock, onWake } = this.#options
    const connection = await openConnection(db)
    try {
      let heard = false
      connection.on('notification', ({ payload }) => {
        if (payload === '') heard = true
        else onWake(lanesOfBitmap(payload ?? ''))
      })
      await answerOf(connection, `listen ${WAKE_CHANNEL}`)
      while (!signal.aborted) {
        // The probe is a notification to ourselves: a pooler answers queries and
        // delivers none.
        heard = false
        await answerOf(connection, `notify ${WAKE_CHANNEL}`)
        await clock.pause(50, signal)
        if (!heard && !signal.aborted) throw new Error('A notification did not arrive')
        this.listening = true
        await clock.pause(PROBE_MS, signal)
      }
    } finally {
      await closeConnection(db, connection)
    }
  }
}

async function answerOf(connection: PostgresConnection, statement: string): Promise<void> {
  const { promise: tooLate, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`No answer within ${ANSWER_MS} ms`)), ANSWER_MS)
  try {
    await Promise.race([connection.query(statement), tooLate])
  } finally {
    clearTimeout(timer)
  }
}
