/**
 * Tells the relays of other processes which lanes have new events.
 *
 * After the commit and on a connection of its own: NOTIFY inside the business
 * transaction would make all commits wait for one lock, and its payload could
 * fail them. Many commits make one notification. It may be lost, and costs a
 * poll interval then: relays poll in any case.
 */
import type { Knex } from 'knex'
import { type Clock, systemClock } from '../lifecycle/clock.ts'
import { type Logger, silentLogger } from '../lifecycle/logger.ts'
import { type Running, run } from '../lifecycle/running.ts'
import { Wake } from '../lifecycle/wake.ts'
import { requireKnown, requireLogger, requireWhole, usePostgres, withDefaults } from '../options.ts'
import { untraced } from '../telemetry/tracing.ts'
import { closeConnection, openConnection, type PostgresConnection } from '../transaction/connection.ts'
import { onCommitted } from './committed.ts'

/** The channel that relays `listen` on. */
export const WAKE_CHANNEL = 'outbox_wake'

/** How the wake notifier behaves. */
export interface WakeNotifierOptions {
  /**
   * Milliseconds between two notifications, at least. More merges more commits
   * into one and adds to the delay of what comes in between.
   * @defaultValue 5
   */
  readonly intervalMs?: number
  /** @defaultValue silent */
  readonly logger?: Logger
  /** @defaultValue the system's */
  readonly clock?: Clock
}

export const wakeNotifierDefaults = {
  intervalMs: 5,
  logger: silentLogger,
  clock: systemClock,
} as const satisfies Required<WakeNotifierOptions>

/** Milliseconds that a notification may take before its connection is given up. */
const SEND_TIMEOUT_MS = 5_000
/** Milliseconds without a connection after a failure. */
const RECONNECT_MS = 1_000
const GRACE_MS = 1_000
const FOREVER_MS = 2 ** 31 - 1

/**
 * Starts to notify after each commit of {@link inTransaction} in this thread.
 * Costs nothing while nothing is committed. A lost connection is opened again;
 * what was committed meanwhile is found by the relays' polls. Stopping notifies
 * of what was committed before.
 */
export function startWakeNotifier(db: Knex, options: WakeNotifierOptions = {}): Running {
  requireKnown(options, wakeNotifierDefaults)
  const { intervalMs, logger, clock } = withDefaults<WakeNotifierOptions, keyof WakeNotifierOptions>(
    options,
    wakeNotifierDefaults,
  )
  usePostgres(db)
  requireWhole('intervalMs', intervalMs)
  requireLogger(options.logger)

  return run(
    async ({ draining, cancelled }) => {
      const wake = new Wake(clock)
      let waiting = 0n
      using _subscription = onCommitted(({ lanes }) => {
        waiting |= toBitmap(lanes)
        wake.wake()
      })
      await using sender = new WakeSender(db)

      while (waiting !== 0n || !draining.aborted) {
        if (waiting === 0n) {
          await wake.within(FOREVER_MS, draining)
          continue
        }
        const bitmap = waiting
        waiting = 0n
        try {
          await untraced(() => sender.send(bitmap, cancelled))
          await clock.pause(intervalMs, draining)
        } catch (error) {
          logger.warn({ err: error }, 'Could not wake the relays of other processes; their polls find the events')
          await clock.pause(RECONNECT_MS, draining)
        }
      }
    },
    { graceMs: GRACE_MS },
  )
}

/** Lane n is bit n; written as hexadecimal digits. */
export function toBitmap(lanes: readonly number[]): bigint {
  return lanes.reduce((bitmap, lane) => bitmap | (1n << BigInt(lane)), 0n)
}

/** The lanes of a notification's payload; none for one that is not ours. */
export function lanesOfBitmap(payload: string): readonly number[] {
  if (!/^[0-9a-f]{1,16}$/.test(payload)) return []
  const bitmap = BigInt(`0x${payload}`)
  return Array.from({ length: 64 }, (_, lane) => lane).filter((lane) => (bitmap >> BigInt(lane)) & 1n)
}

/** Owns the connection. A failed send closes it, and the next opens another. */
class WakeSender implements AsyncDisposable {
  readonly #db: Knex
  #connection: PostgresConnection | null = null

  constructor(db: Knex) {
    this.#db = db
  }

  async send(bitmap: bigint, cancelled: AbortSignal): Promise<void> {
    const { promise: tooLate, reject } = Promise.withResolvers<never>()
    const expire = () => reject(new Error(`No answer within ${SEND_TIMEOUT_MS} ms`))
    const timer = setTimeout(expire, SEND_TIMEOUT_MS)
    cancelled.addEventListener('abort', expire, { once: true })
    try {
      this.#connection ??= await this.#open(tooLate)
      const sent = this.#connection.query('select pg_notify($1, $2)', [WAKE_CHANNEL, bitmap.toString(16)])
      await Promise.race([sent, tooLate])
    } catch (error) {
      await this[Symbol.asyncDispose]()
      throw error
    } finally {
      clearTimeout(timer)
      cancelled.removeEventListener('abort', expire)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const connection = this.#connection
    this.#connection = null
    if (connection) await closeConnection(this.#db, connection)
  }

  /** A connection that comes too late is closed again. */
  async #open(tooLate: Promise<never>): Promise<PostgresConnection> {
    const opening = openConnection(this.#db)
    return await Promise.race([opening, tooLate]).catch((error: unknown) => {
      opening.then(
        (connection) => closeConnection(this.#db, connection),
        () => {},
      )
      throw error
    })
  }
}
