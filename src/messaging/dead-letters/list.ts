/** What operators look at: held keys and dead letters. Payloads are not among it; they are read one by one, on purpose. */
import type { Knex } from 'knex'
import { fromTables, InvalidOptionError } from '../errors.ts'
import { parseJson } from '../json.ts'
import { requireKnown, requireOneOf, requireText, requireWhole, usePostgres } from '../options.ts'
import type { HeldKeyRef, HeldKeyRequest } from './held-keys.ts'
import type { DeadLetterState } from './queries.ts'

const HELD_KEY_STATES = ['backoff', 'parked']
const DEAD_LETTER_STATES: readonly DeadLetterState[] = ['dead', 'waiting', 'redriven', 'skipped']

/** A held key as an operator sees it. */
export interface ListedHeldKey extends HeldKeyRef {
  readonly state: 'backoff' | 'parked'
  readonly attempts: number
  /**
   * An error's code or class; a handler's with the place where it was thrown, `TypeError at orders/summary.ts:12:5`,
   * and a database's with the names it concerns, `23502 (table greetings, column line)`.
   */
  readonly reason: string
  readonly request: HeldKeyRequest | null
  /** The event that was refused; `null` for the relay, whose held events stay in `outbox`, the first by `seq` being the one. */
  readonly eventId: string | null
  readonly eventType: string | null
  readonly heldAt: Date
  readonly nextAttemptAt: Date
}

export interface HeldKeyFilter {
  /** `relay`, or a consumer's group id. @defaultValue all */
  readonly holder?: string
  /** @defaultValue both */
  readonly state?: 'backoff' | 'parked'
  /** @defaultValue 100 */
  readonly limit?: number
}

/** The keys held longest, first. */
export async function listHeldKeys(db: Knex, filter: HeldKeyFilter = {}): Promise<readonly ListedHeldKey[]> {
  usePostgres(db)
  requireKnown(filter, { holder: true, state: true, limit: true })
  const { holder = null, state = null, limit = 100 } = filter
  requireTexts({ holder })
  if (state !== null) requireOneOf('state', state, HELD_KEY_STATES)
  requireWhole('limit', limit)
  const { rows } = await fromTables(
    db.raw<{ rows: ListedHeldKey[] }>(
      `select holder,
            topic,
            aggregate_type as "aggregateType",
            aggregate_id as "aggregateId",
            state,
            attempts,
            reason,
            request,
            event_id as "eventId",
            event_type as "eventType",
            held_at as "heldAt",
            next_attempt_at as "nextAttemptAt"
       from held_keys
      where (:holder::text is null or holder = :holder)
        and (:state::text is null or state = :state)
      order by held_at, holder, topic, aggregate_type, aggregate_id
      limit :limit`,
      { holder, state, limit },
    ),
  )
  return rows
}

/** A dead letter as an operator sees it. */
export interface ListedDeadLetter extends HeldKeyRef {
  /** Its place in the order of arrival; also what names it, and what a next page begins after. */
  readonly seq: bigint
  readonly state: DeadLetterState
  /** `null` for a record that is not one of ours, or whose key cannot be held. */
  readonly eventId: string | null
  readonly eventType: string | null
  readonly partition: number | null
  readonly offset: bigint | null
  readonly reason: string | null
  readonly attempts: number
  readonly createdAt: Date
  readonly settledAt: Date | null
}

export interface DeadLetterFilter {
  readonly holder?: string
  readonly topic?: string
  readonly aggregateId?: string
  /** @defaultValue `dead` and `waiting`: what is not settled */
  readonly states?: readonly DeadLetterState[]
  /** Begins after this one. @defaultValue the start */
  readonly after?: bigint
  /** @defaultValue 100 */
  readonly limit?: number
}

/** Dead letters in the order of their arrival. Pages by `seq`, so none is shown twice or left out. */
export async function listDeadLetters(db: Knex, filter: DeadLetterFilter = {}): Promise<readonly ListedDeadLetter[]> {
  usePostgres(db)
  requireKnown(filter, { holder: true, topic: true, aggregateId: true, states: true, after: true, limit: true })
  const {
    holder = null,
    topic = null,
    aggregateId = null,
    states = ['dead', 'waiting'],
    after = 0n,
    limit = 100,
  } = filter
  requireTexts({ holder, topic, aggregateId })
  if (!Array.isArray(states)) throw new InvalidOptionError('states', states, 'a list of states')
  for (const state of states) requireOneOf('states', state, DEAD_LETTER_STATES)
  requireSeq('after', after)
  requireWhole('limit', limit)
  const { rows } = await fromTables(
    db.raw<{
      rows: (Omit<ListedDeadLetter, 'seq' | 'offset'> & { seq: string; offset: string | null })[]
    }>(
      `select seq::text,
            holder,
            topic,
            aggregate_type as "aggregateType",
            aggregate_id as "aggregateId",
            state,
            event_id as "eventId",
            event_type as "eventType",
            partition,
            record_offset::text as "offset",
            reason,
            attempts,
            created_at as "createdAt",
            settled_at as "settledAt"
       from dead_letters
      where state = any(:states::text[])
        and seq > :after::bigint
        and (:holder::text is null or holder = :holder)
        and (:topic::text is null or topic = :topic)
        and (:aggregateId::text is null or aggregate_id = :aggregateId)
      order by dead_letters.seq
      limit :limit`,
      { states, after: after.toString(), holder, topic, aggregateId, limit },
    ),
  )
  return rows.map((row) => ({
    ...row,
    seq: BigInt(row.seq),
    offset: row.offset === null ? null : BigInt(row.offset),
  }))
}

/** The whole record of one dead letter; `null` where there is none, or where the event stays in the outbox. */
export async function readDeadLetter(
  db: Knex,
  seq: bigint,
): Promise<{
  readonly key: Buffer | null
  readonly value: Buffer | null
  readonly headers: Record<string, string>
} | null> {
  usePostgres(db)
  requireSeq('seq', seq)
  const { rows } = await fromTables(
    db.raw<{
      rows: { key: Buffer | null; value: Buffer | null; headers: string | null }[]
    }>(
      `select record_key as key,
            record_value as value,
            record_headers::text as headers
       from dead_letters
      where seq = :seq::bigint`,
      { seq: seq.toString() },
    ),
  )
  const [row] = rows
  if (!row?.headers) return null
  return { key: row.key, value: row.value, headers: parseJson(row.headers) as Record<string, string> }
}

/**
 * Settles a record that is not one of ours, after a look at it: nothing can
 * redrive it. Resolves to whether it was open. Events are settled by
 * `requestResume` and `requestSkip`, which keep the order of their key.
 */
export async function dismissForeignRecord(db: Knex, seq: bigint): Promise<boolean> {
  usePostgres(db)
  requireSeq('seq', seq)
  const { rowCount } = await fromTables(
    db.raw<{ rowCount: number }>(
      `update dead_letters
        set state = 'skipped',
            settled_at = clock_timestamp()
      where seq = :seq::bigint
        and state = 'dead'
        and event_id is null`,
      { seq: seq.toString() },
    ),
  )
  return rowCount === 1
}

/** Throws {@link InvalidOptionError} for what is given and is no text: a number would be an error of the database's. */
function requireTexts(given: Readonly<Record<string, string | null>>): void {
  for (const [option, value] of Object.entries(given)) if (value !== null) requireText(option, value)
}

/** The largest bigint of Postgres. */
const MAX_SEQ = 2n ** 63n - 1n

/** Throws {@link InvalidOptionError} unless `seq` can be a dead letter's place. */
function requireSeq(option: string, seq: unknown): void {
  if (typeof seq !== 'bigint' || seq < 0n || seq > MAX_SEQ) {
    throw new InvalidOptionError(option, seq, 'a bigint, as listDeadLetters has it in seq')
  }
}
