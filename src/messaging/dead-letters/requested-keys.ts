/** The SQL on `held_keys` by which an operator's requests for parked keys are found and carried out. */
import type { Knex } from 'knex'
import { type BackendRef, type HeldKeyRef, type HeldKeyRequest, type HeldKeyState, keyOf } from './held-keys.ts'

/** A parked key for which something is asked, and which transaction has it. */
export interface RequestedKey extends Pick<HeldKeyState, 'attempts' | 'eventId' | 'rowVersion'> {
  readonly backend: BackendRef
  readonly request: HeldKeyRequest
}

interface RequestedRow {
  request: HeldKeyRequest
  attempts: number
  event_id: string | null
  row_version: string
  pid: number
  xid: string
}

/**
 * A page of the parked keys of `holder` for which an operator has asked
 * something, beginning after the key `after`, and how many keys are parked in
 * all, counted up to `countLimit`. One statement, as it is asked every second.
 * Served by the primary key, and in its order, which no request changes; the
 * table holds what waits, and is small.
 */
export async function selectParked(
  db: Knex,
  holder: string,
  {
    after,
    limit,
    countLimit,
  }: { readonly after: HeldKeyRef | null; readonly limit: number; readonly countLimit: number },
): Promise<{ readonly requested: readonly HeldKeyRef[]; readonly parkedCount: number }> {
  const { rows } = await db.raw<{
    rows: { parked: number; topic: string | null; aggregate_type: string; aggregate_id: string }[]
  }>(
    `select counted.parked, requested.topic, requested.aggregate_type, requested.aggregate_id
       from (select count(*)::int as parked
               from (select 1
                       from held_keys
                      where holder = :holder
                        and state = 'parked'
                      limit :countLimit) as parked_keys) as counted
       left join lateral (
            select topic, aggregate_type, aggregate_id
              from held_keys
             where holder = :holder
               and state = 'parked'
               and request is not null
               and (topic, aggregate_type, aggregate_id) > (:topic, :aggregateType, :aggregateId)
             order by topic, aggregate_type, aggregate_id
             limit :limit) as requested on true`,
    { ...keyOf(after ?? BEFORE_ALL), holder, limit, countLimit },
  )
  return {
    parkedCount: rows[0]?.parked ?? 0,
    requested: rows.flatMap(({ topic, aggregate_type, aggregate_id }) =>
      topic === null ? [] : [{ holder, topic, aggregateType: aggregate_type, aggregateId: aggregate_id }],
    ),
  }
}

// No name is empty.
const BEFORE_ALL: HeldKeyRef = { holder: '', topic: '', aggregateType: '', aggregateId: '' }

/**
 * Locks one requested key to carry the request out; `null` when another
 * instance is at it or has done it. Skips a locked row: the one who has it
 * will finish, and waiting would only idle.
 */
export async function lockRequested(trx: Knex.Transaction, key: HeldKeyRef): Promise<RequestedKey | null> {
  const { rows } = await trx.raw<{ rows: RequestedRow[] }>(
    `select request,
            attempts,
            event_id,
            xmin::text as row_version,
            pg_backend_pid() as pid,
            pg_current_xact_id()::text as xid
       from held_keys
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and state = 'parked'
        and request is not null
        for update skip locked`,
    keyOf(key),
  )
  const [row] = rows
  if (!row) return null
  const { request, attempts, event_id: eventId, row_version: rowVersion, pid, xid } = row
  return { request, attempts, eventId, rowVersion, backend: { pid, xid } }
}

/** Changes what is asked for a parked key whose row this transaction has locked. */
export async function setRequest(
  trx: Knex.Transaction,
  key: HeldKeyRef,
  request: HeldKeyRequest | null,
): Promise<void> {
  await trx.raw(
    `update held_keys
        set request = :request
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId`,
    { ...keyOf(key), request },
  )
}

/**
 * Says which event a parked key waits for, whose row this transaction has
 * locked, where it is another one than so far. A skip was of that one, which
 * has gone on: what stays of it is to resume.
 */
export async function waitForEvent(
  trx: Knex.Transaction,
  key: HeldKeyRef,
  { eventId, eventType, reason }: { readonly eventId: string; readonly eventType: string; readonly reason: string },
): Promise<void> {
  await trx.raw(
    `update held_keys
        set event_id = :eventId,
            event_type = :eventType,
            reason = :reason,
            request = 'resume'
      where holder = :holder
        and topic = :topic
        and aggregate_type = :aggregateType
        and aggregate_id = :aggregateId
        and event_id is distinct from :eventId`,
    { ...keyOf(key), eventId, eventType, reason },
  )
}
