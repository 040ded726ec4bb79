/**
 * What an operator may ask for a held key. The request is a mark in the key's
 * row; the relay or the consumer that holds the key carries it out, within a
 * second or so, and in order.
 */
import type { Knex } from 'knex'
import { fromTables, InvalidOptionError } from '../errors.ts'
import { requireObject, usePostgres } from '../options.ts'
import type { HeldKeyRef, HeldKeyRequest } from './held-keys.ts'

/** What became of a request. */
export type RequestOutcome =
  | 'requested'
  /** The key is not held: it has gone on by itself, or never was. */
  | 'not_held'
  /** The key is held in another state than the request is for. */
  | 'not_applicable'

/**
 * Asks to let a parked key go on: its first event, then, in order, all that
 * waits behind it. If that fails again a consumer's key stays parked, by the
 * event that failed; a key of the relay's is in back-off with attempts counted
 * anew, and a second request is then `not_applicable`.
 */
export async function requestResume(db: Knex, key: HeldKeyRef): Promise<RequestOutcome> {
  return await request(db, key, 'resume', 'parked')
}

/**
 * Asks to leave a parked key's first event out for good, and to let what waits
 * behind it go on. A consumer's event stays among the dead letters, as
 * `skipped`; so does one of the relay's, which has been in `outbox` alone. One
 * that an earlier send of the relay has put on its topic after all counts as
 * published instead. Asked while a consumer carries an earlier request out, it
 * leaves nothing more out: it is for the event with which the key is listed,
 * and that has gone on.
 */
export async function requestSkip(db: Knex, key: HeldKeyRef): Promise<RequestOutcome> {
  return await request(db, key, 'skip', 'parked')
}

/** Asks to make the next attempt at a key in back-off now. Attempts go on counting. */
export async function requestRetryNow(db: Knex, key: HeldKeyRef): Promise<RequestOutcome> {
  return await request(db, key, 'retry_now', 'backoff')
}

/**
 * One statement, so the state that is asked about is the state that is changed;
 * waits for whoever is carrying out an earlier request. A second request takes
 * the first one's place. Served by the primary key of held_keys.
 */
async function request(
  db: Knex,
  key: HeldKeyRef,
  wanted: HeldKeyRequest,
  state: 'backoff' | 'parked',
): Promise<RequestOutcome> {
  usePostgres(db)
  requireObject('key', key)
  const { holder, topic, aggregateType, aggregateId } = key
  for (const [part, value] of Object.entries({ holder, topic, aggregateType, aggregateId })) {
    if (typeof value !== 'string' || value.includes('\0'))
      throw new InvalidOptionError(part, value, 'text, as listHeldKeys has it')
  }
  const { rows } = await fromTables(
    db.raw<{ rows: { state: string }[] }>(
      `update held_keys
        set request = case when state = :state then :wanted else request end,
            next_attempt_at = case when state = :state and :wanted = 'retry_now' then clock_timestamp() else next_attempt_at end
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
     returning state`,
      { holder, topic, aggregateType, aggregateId, wanted, state },
    ),
  )
  const [row] = rows
  if (!row) return 'not_held'
  return row.state === state ? 'requested' : 'not_applicable'
}
