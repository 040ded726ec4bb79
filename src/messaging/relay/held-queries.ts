/** The relay's SQL on `held_keys`. The row is the key's lock. */
import type { Knex } from 'knex'
import type { HeldKey, HoldRequest, KeyRef, SkipRequest } from '../source.ts'

interface HeldKeyRow {
  lane: number
  topic: string
  aggregate_type: string
  aggregate_id: string
  state: 'backoff' | 'parked'
  attempts: number
  due_in_ms: number
  reason: string
  request: HeldKey['request']
}

/**
 * Writes down that a key is held or parked, and answers what was asked of it.
 *
 * A parked key goes on before it can be parked again, so one that is parked
 * alike is met only where the call is repeated, its answer lost: what was asked
 * since is still to be answered.
 */
export async function upsertHeldKey(trx: Knex.Transaction, key: KeyRef, request: HoldRequest): Promise<void> {
  await trx.raw(
    `insert into held_keys (holder, topic, aggregate_type, aggregate_id, lane, state, attempts, next_attempt_at, reason)
     values ('relay', :topic, :aggregateType, :aggregateId, :lane, :state, :attempts,
             clock_timestamp() + :retryInMs * interval '1 millisecond', :reason)
         on conflict (holder, topic, aggregate_type, aggregate_id)
         do update set state = excluded.state,
                       attempts = excluded.attempts,
                       next_attempt_at = excluded.next_attempt_at,
                       reason = excluded.reason,
                       request = case when held_keys.state = 'parked'
                                       and excluded.state = 'parked'
                                       and held_keys.attempts = excluded.attempts
                                       and held_keys.reason = excluded.reason
                                      then held_keys.request
                                       end`,
    {
      ...toColumns(key),
      lane: key.lane,
      state: request.park ? 'parked' : 'backoff',
      attempts: request.attempts,
      retryInMs: request.retryInMs,
      reason: request.reason,
    },
  )
}

/** Locks a held key's row; resolves to whether the key is still held. */
export async function lockHeldKey(trx: Knex.Transaction, key: KeyRef): Promise<boolean> {
  const { rows } = await trx.raw<{ rows: unknown[] }>(
    `select 1
       from held_keys
      where holder = 'relay'
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        for update`,
    toColumns(key),
  )
  return rows.length === 1
}

/**
 * Carries out the request to skip: leaves the first event of a parked key out,
 * says so among the dead letters, and lets the key go on; or counts the event as
 * published, where it was found on its topic. Resolves to how many events that
 * were: none where nothing of the kind is asked any more, its time has not come,
 * or another event is the first. A time further ahead than any wait is from
 * before the clock was set back.
 *
 * The caller has locked the lane's lease, so nobody publishes the event
 * meanwhile. Served by the primary key of `held_keys` and by outbox_held.
 */
export async function skipFirst(
  trx: Knex.Transaction,
  key: KeyRef,
  { eventId, published, longestWaitMs, ruleTopic }: SkipRequest & { readonly ruleTopic: string },
): Promise<number> {
  const { rows } = await trx.raw<{ rows: { settled: number }[] }>(
    `with first as (
       select outbox.id
         from outbox
        where outbox.held
          and outbox.published_at is null
          and outbox.lane = :lane
          and outbox.aggregate_type = :aggregateType
          and outbox.aggregate_id = :aggregateId
          and coalesce(outbox.topic, :ruleTopic) = :topic
        order by outbox.seq
        limit 1),
     asked as (
       update held_keys
          set state = 'backoff',
              attempts = 0,
              next_attempt_at = clock_timestamp(),
              request = null
         from first
        where first.id = :eventId
          and holder = 'relay'
          and topic = :topic
          and aggregate_type = :aggregateType
          and aggregate_id = :aggregateId
          and state = 'parked'
          and request = 'skip'
          and (next_attempt_at <= clock_timestamp()
               or next_attempt_at > clock_timestamp() + :longestWaitMs * interval '1 millisecond')
       returning first.id, reason),
     settled as (
       update outbox
          set published_at = clock_timestamp(),
              held = false
         from asked
        where outbox.id = asked.id
       returning outbox.id, outbox.event_type),
     declared as (
       insert into dead_letters (holder, state, event_id, event_type, topic, aggregate_type, aggregate_id, reason, settled_at)
       select 'relay', 'skipped', settled.id, settled.event_type, :topic, :aggregateType, :aggregateId, asked.reason, clock_timestamp()
         from settled
        cross join asked
        where not :published
           on conflict (holder, event_id) where event_id is not null
           do update set state = 'skipped',
                         settled_at = excluded.settled_at)
     select count(*)::integer as settled
       from settled`,
    { ...toColumns(key), lane: key.lane, ruleTopic, eventId, published, longestWaitMs },
  )
  return rows[0]?.settled ?? 0
}

/** Lets a parked key go on if `asked` is still what is asked of it; resolves to how many keys that were. Served by the primary key. */
export async function resumeKey(trx: Knex.Transaction, key: KeyRef, asked: 'resume' | 'skip'): Promise<number> {
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `update held_keys
        set state = 'backoff',
            attempts = 0,
            next_attempt_at = clock_timestamp(),
            request = null
      where holder = 'relay'
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and state = 'parked'
        and request = :asked`,
    { ...toColumns(key), asked },
  )
  return rowCount
}

/** The relay's held keys in `lanes`. */
export async function selectHeldKeys(db: Knex, lanes: readonly number[]): Promise<readonly HeldKey[]> {
  const { rows } = await db.raw<{ rows: HeldKeyRow[] }>(
    `select lane, topic, aggregate_type, aggregate_id, state, attempts, reason, request,
            least(greatest(0, ceil(extract(epoch from next_attempt_at - clock_timestamp()) * 1000)), 2e9)::integer as due_in_ms
       from held_keys
      where holder = 'relay'
        and lane = any(cast(:lanes as smallint[]))
      order by held_at`,
    { lanes },
  )
  return rows.map((row) => ({
    lane: row.lane,
    topic: row.topic,
    aggregateType: row.aggregate_type,
    aggregateId: row.aggregate_id,
    state: row.state,
    attempts: row.attempts,
    dueInMs: row.due_in_ms,
    reason: row.reason,
    request: row.request,
  }))
}

/**
 * Lets a key go if no event of it is held any more. The caller has locked the
 * key's row and the lane's lease, so none becomes held meanwhile.
 */
export async function deleteIfEmpty(trx: Knex.Transaction, key: KeyRef, ruleTopic: string): Promise<boolean> {
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `delete from held_keys
      where holder = 'relay'
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and not exists (
            select 1
              from outbox
             where outbox.held
               and outbox.published_at is null
               and outbox.lane = :lane
               and outbox.aggregate_type = :aggregateType
               and outbox.aggregate_id = :aggregateId
               and coalesce(outbox.topic, :ruleTopic) = :topic)`,
    { ...toColumns(key), lane: key.lane, ruleTopic },
  )
  return rowCount === 1
}

/**
 * Makes events pending again that a key held which has been let go: another
 * topic rule places them elsewhere now, where no key holds them. Resolves to how
 * many they were. Served by outbox_held.
 */
export async function returnToPending(trx: Knex.Transaction, key: KeyRef, ruleTopic: string): Promise<number> {
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `update outbox
        set held = false
      where held
        and published_at is null
        and topic is null
        and lane = :lane
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and not exists (
            select 1
              from held_keys
             where holder = 'relay'
               and held_keys.topic = :ruleTopic
               and held_keys.aggregate_type = :aggregateType
               and held_keys.aggregate_id = :aggregateId)`,
    { aggregateType: key.aggregateType, aggregateId: key.aggregateId, lane: key.lane, ruleTopic },
  )
  return rowCount
}

/** The key alone: callers hand over objects that know more, and a binding too many is an error in knex. */
function toColumns({ topic, aggregateType, aggregateId }: KeyRef) {
  return { topic, aggregateType, aggregateId }
}
