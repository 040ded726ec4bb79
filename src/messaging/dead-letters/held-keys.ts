/**
 * The SQL on `held_keys`: keys that wait after a refusal, in back-off or parked.
 *
 * The row is the key's lock. Who stores a follower, redrives or lets the key go
 * holds it, so that a follower is either stored before the key is let go, and
 * redriven, or arrives after that, and is processed as usual.
 */
import type { Knex } from 'knex'

/** A key of one holder: what is held, parked and resumed as one. */
export interface HeldKeyRef {
  /** `relay`, or the consumer's name (its group id). */
  readonly holder: string
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
}

/** What an operator can ask for a held key. */
export type HeldKeyRequest = 'resume' | 'skip' | 'retry_now'

/** A held key as it stands. */
export interface HeldKeyState extends HeldKeyRef {
  readonly state: 'backoff' | 'parked'
  readonly attempts: number
  /** Milliseconds until the next attempt, on the database's clock; 0 when due. */
  readonly dueInMs: number
  /** Why: an error's code or class. */
  readonly reason: string
  /** The event that the attempts were made at; `null` where the holder does not tell. */
  readonly eventId: string | null
  readonly request: HeldKeyRequest | null
  /** Another one after each change of the row: whether a request stands that was not seen yet. */
  readonly rowVersion: string
}

/** Which transaction does the work: enough to end it from elsewhere, and to know that it has ended. */
export interface BackendRef {
  readonly pid: number
  readonly xid: string
}

interface HeldKeyRow {
  aggregate_type: string | null
  aggregate_id: string
  state: 'backoff' | 'parked'
  attempts: number
  due_in_ms: number
  reason: string
  event_id: string | null
  request: HeldKeyRequest | null
  row_version: string
  pid: number
  xid: string
}

/**
 * Locks those of `keys` that `holder` holds in `topic`, and tells which transaction has them.
 *
 * Waits for a redrive of the key that is under way: after it the key is gone,
 * or its row says what there is still to come. A key that another transaction
 * begins to hold meanwhile is not seen; whoever processes its event then makes
 * the dead letter a duplicate, which a redrive settles without effect. Served
 * by the primary key; locked in its order.
 */
export async function lockHeldKeys(
  trx: Knex.Transaction,
  { holder, topic }: Pick<HeldKeyRef, 'holder' | 'topic'>,
  keys: readonly Pick<HeldKeyRef, 'aggregateType' | 'aggregateId'>[],
): Promise<{ readonly backend: BackendRef; readonly held: readonly HeldKeyState[] }> {
  const { rows } = await trx.raw<{ rows: HeldKeyRow[] }>(
    `with held as (
       select aggregate_type, aggregate_id, state, attempts, next_attempt_at, reason, event_id, request, xmin::text as row_version
         from held_keys
        where holder = :holder
          and topic = :topic
          and (aggregate_type, aggregate_id) in (select * from unnest(:types::text[], :ids::text[]))
        order by aggregate_type, aggregate_id
          for update)
     select pg_backend_pid() as pid,
            pg_current_xact_id()::text as xid,
            aggregate_type, aggregate_id, state, attempts, reason, event_id, request, row_version,
            least(greatest(0, ceil(extract(epoch from next_attempt_at - clock_timestamp()) * 1000)), 2e9)::int as due_in_ms
       from (values (1)) as always (one)
       left join held on true`,
    { holder, topic, types: keys.map((key) => key.aggregateType), ids: keys.map((key) => key.aggregateId) },
  )
  const [first] = rows
  if (!first) throw new Error('A query without a condition gave no row')
  const held = rows.flatMap((row) => (row.aggregate_type === null ? [] : [toState({ holder, topic }, row)]))
  return { backend: { pid: first.pid, xid: first.xid }, held }
}

/**
 * Records that `attempts` have failed on a key's first event, and lets the key rest for `retryInMs`.
 *
 * The caller has locked the row if there is one, and counts. Answers the request
 * that the attempt was begun with, at `rowVersion` of the key's row, `null` where
 * it had none: one that came meanwhile stands, whatever it is. Of a skip that
 * came while another event was the key's first there stays to resume, and a
 * retry now keeps its time. A parked key stays parked.
 */
export async function recordAttempts(
  trx: Knex.Transaction,
  key: HeldKeyRef,
  failure: {
    readonly attempts: number
    readonly eventId: string
    readonly eventType: string
    readonly reason: string
    readonly retryInMs: number
    readonly rowVersion: string | null
  },
): Promise<void> {
  await trx.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, state, attempts, next_attempt_at, reason, event_id, event_type)
     values (:holder, :topic, :aggregateType, :aggregateId, 'backoff', :attempts,
             clock_timestamp() + :retryInMs * interval '1 millisecond', :reason, :eventId, :eventType)
         on conflict (holder, topic, aggregate_type, aggregate_id)
         do update set attempts = excluded.attempts,
                       next_attempt_at = case
                         when held_keys.xmin::text is distinct from :rowVersion and held_keys.request = 'retry_now' then held_keys.next_attempt_at
                         else excluded.next_attempt_at end,
                       reason = excluded.reason,
                       event_id = excluded.event_id,
                       event_type = excluded.event_type,
                       request = case
                         when held_keys.xmin::text = :rowVersion then null
                         when held_keys.request = 'skip' and held_keys.event_id <> excluded.event_id then 'resume'
                         else held_keys.request end`,
    { ...keyOf(key), ...failure },
  )
}

/** Turns a key in back-off into a parked one: it waits for an operator. What was asked of its back-off is over with it. */
export async function parkKey(trx: Knex.Transaction, key: HeldKeyRef): Promise<void> {
  await trx.raw(
    `update held_keys
        set state = 'parked',
            request = null
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId`,
    keyOf(key),
  )
}

/** Lets keys of one topic go. The caller has locked them. */
export async function releaseKeys(
  trx: Knex.Transaction,
  { holder, topic }: Pick<HeldKeyRef, 'holder' | 'topic'>,
  keys: readonly Pick<HeldKeyRef, 'aggregateType' | 'aggregateId'>[],
): Promise<void> {
  await trx.raw(
    `delete from held_keys
      where holder = :holder
        and topic = :topic
        and (aggregate_type, aggregate_id) in (select * from unnest(:types::text[], :ids::text[]))`,
    { holder, topic, types: keys.map((key) => key.aggregateType), ids: keys.map((key) => key.aggregateId) },
  )
}

/**
 * Milliseconds that a key in back-off still rests; 0 when it is due, parked or not held at all.
 * A mere look, without a lock: the attempt itself looks again.
 */
export async function selectRest(db: Knex, key: HeldKeyRef): Promise<number> {
  const { rows } = await db.raw<{ rows: { due_in_ms: number }[] }>(
    `select least(greatest(0, ceil(extract(epoch from next_attempt_at - clock_timestamp()) * 1000)), 2e9)::int as due_in_ms
       from held_keys
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and state = 'backoff'`,
    keyOf(key),
  )
  return rows[0]?.due_in_ms ?? 0
}

/** The key alone: callers hand over objects that know more, and a binding too many is an error in knex. */
export function keyOf({ holder, topic, aggregateType, aggregateId }: HeldKeyRef) {
  return { holder, topic, aggregateType, aggregateId }
}

function toState({ holder, topic }: Pick<HeldKeyRef, 'holder' | 'topic'>, row: HeldKeyRow): HeldKeyState {
  return {
    holder,
    topic,
    aggregateType: row.aggregate_type ?? '',
    aggregateId: row.aggregate_id,
    state: row.state,
    attempts: row.attempts,
    dueInMs: row.due_in_ms,
    reason: row.reason,
    eventId: row.event_id,
    request: row.request,
    rowVersion: row.row_version,
  }
}
