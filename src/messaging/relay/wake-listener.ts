/**
 * Hears of commits in other processes: LISTEN on a connection of its own.
 *
 * A hint and no more. A connection that has ended says so; one that is frozen,
 * or that a pooler hands to others, is found out by a probe. The relay's poll
 * finds the events meanwhile.
 */
import type { Knex } from 'knex'
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { lanesOfBitmap, WAKE_CHANNEL } from '../outbox/wake-notifier.ts'
import { untraced } from '../telemetry/tracing.ts'
import { closeConnection, openConnection } from '../transaction/connection.ts'

/** Milliseconds between two probes. */
const PROBE_MS = 10_000
/** Milliseconds that an answer may take. */
const ANSWER_MS = 3_000
/** Pauses after failures in a row. Behind a pooler that hands no notifications on it never succeeds. */
const RECONNECT: Backoff = { firstMs: 1_000, maxMs: 60_000 }

const ENDED = 'The connection that listens has ended'

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
      for (let failures = 0; !signal.aborted; ) {
        await this.#listen(signal).catch((error: unknown) => {
          failures = this.listening ? 1 : failures + 1
          if (failures === 1 && !signal.aborted)
            logger.warn({ err: error }, 'Notifications do not arrive; polling until they do')
        })
        this.listening = false
        await clock.pause(backoffMs(RECONNECT, failures, clock.random()), signal)
      }
    })
  }

  async #listen(signal: AbortSignal): Promise<void> {
    const { db, clock, onWake } = this.#options
    const opening = openConnection(db)
    const connection = await inTime(opening, signal).catch((error: unknown) => {
      opening.then(
        (late) => closeConnection(db, late),
        () => {},
      )
      throw error
    })
    const lost = new AbortController()
    connection.on('end', () => lost.abort())
    const over = AbortSignal.any([signal, lost.signal])
    try {
      let heard = Promise.withResolvers<void>()
      connection.on('notification', ({ payload }) => {
        if (payload === '') heard.resolve()
        else onWake(lanesOfBitmap(payload ?? ''))
      })
      await inTime(connection.query(`listen ${WAKE_CHANNEL}`), over)
      while (!signal.aborted) {
        // Sent on another connection: a pooler shows a client what its own
        // statement has caused, and nothing that arrives in between.
        heard = Promise.withResolvers<void>()
        await inTime(Promise.all([db.raw(`notify ${WAKE_CHANNEL}`), heard.promise]), over)
        this.listening = true
        await clock.pause(PROBE_MS, over)
        if (lost.signal.aborted) throw new Error(ENDED)
      }
    } finally {
      await closeConnection(db, connection)
    }
  }
}

async function inTime<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: givenUp, reject } = Promise.withResolvers<never>()
  const giveUp = () => reject(new Error(signal.aborted ? ENDED : `No answer within ${ANSWER_MS} ms`))
  const timer = setTimeout(giveUp, ANSWER_MS)
  if (signal.aborted) giveUp()
  signal.addEventListener('abort', giveUp, { once: true })
  try {
    return await Promise.race([answer, givenUp])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', giveUp)
  }
}
