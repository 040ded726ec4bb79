/** The SQL on `lane_leases` and `relay_workers`. All times are the database's. */
import type { Knex } from 'knex'
import type {
  AdoptedTopic,
  DirectoryView,
  LaneGrant,
  LaneRelease,
  Ownership,
  Settlement,
  WorkerRest,
} from '../source.ts'
import { toLeaseColumns, toSettlement } from './outbox-queries.ts'
import { RESTS } from './topic-queries.ts'

/**
 * Extends the life of `owners` and shows every lane, every live worker, the
 * lanes in which something is asked of a held key, and the topics whose
 * partition count was ever changed, which are few: one statement a second for a
 * whole relay process.
 *
 * It writes to `relay_workers` alone, so it never waits for the share locks
 * that fenced writes hold on `lane_leases`. Workers dead for an hour are
 * forgotten on the way, and those whose life ends further ahead than any lease
 * reaches: they died before this clock was set back.
 */
export async function renewWorkers(
  db: Knex,
  owners: readonly string[],
  { leaseMs, rests }: { leaseMs: number; rests: readonly WorkerRest[] },
): Promise<DirectoryView> {
  const { rows } = await db.raw<{
    rows: {
      lanes: [number, string | null, string, number, string][]
      live: string[]
      requested: number[]
      adopted: AdoptedTopic[]
    }[]
  }>(
    `with renewed as (
       insert into relay_workers (owner, expires_at, rests_for)
       select owner,
              clock_timestamp() + :leaseMs * interval '1 millisecond',
              array(
                select rest.adoption
                  from unnest(cast(:resting as uuid[]), cast(:adoptions as uuid[])) as rest (owner, adoption)
                 where rest.owner = ours.owner)
         from unnest(cast(:owners as uuid[])) as ours (owner)
           on conflict (owner)
           do update set expires_at = excluded.expires_at, rests_for = excluded.rests_for),
     forgotten as (
       delete from relay_workers
        where (expires_at < clock_timestamp() - interval '1 hour' or expires_at > clock_timestamp() + interval '1 hour')
          and owner <> all(cast(:owners as uuid[])))
     select (select json_agg(json_build_array(lane, owner, token::text, crashes, doubt::text) order by lane) from lane_leases) as lanes,
            (select coalesce(array_agg(owner::text), '{}') from relay_workers where expires_at > clock_timestamp()) as live,
            (select coalesce(array_agg(distinct lane), '{}') from held_keys where holder = 'relay' and request is not null) as requested,
            (select coalesce(json_agg(json_build_object(
                      'topic', topic,
                      'partitionCount', partition_count,
                      'adoption', case when ${RESTS} then adoption end) order by topic), '[]')
               from topics
              where adoption is not null) as adopted`,
    { owners, leaseMs, resting: rests.map(({ owner }) => owner), adoptions: rests.map(({ adoption }) => adoption) },
  )
  const [view] = rows
  return {
    lanes: (view?.lanes ?? []).map(([lane, owner, token, crashes, doubt]) => ({
      lane,
      owner,
      token: BigInt(token),
      crashes,
      doubt: BigInt(doubt),
    })),
    liveOwners: [...new Set([...(view?.live ?? []), ...owners])],
    requestedLanes: view?.requested ?? [],
    adoptedTopics: view?.adopted ?? [],
  }
}

/**
 * Takes those of `lanes` that are free or whose owner has expired.
 *
 * One statement re-checks the old owner under the row's lock, so of two relays
 * that want a lane one gets it. A lane on which a fenced write is under way is
 * skipped: it is had a moment later. The horizon is read after the takeover is
 * decided: whatever was pending then has a lower `seq`. All of that is in doubt
 * when the old owner has vanished: nobody knows what it had sent.
 */
export async function claimLanes(db: Knex, owner: string, lanes: readonly number[]): Promise<readonly LaneGrant[]> {
  const { rows } = await db.raw<{
    rows: { lane: number; token: string; crashes: number; horizon: string; doubt: string }[]
  }>(
    `with wanted as (
       select lane_leases.lane, lane_leases.owner is not null as is_taken_over
         from lane_leases
        where lane_leases.lane = any(cast(:lanes as smallint[]))
          and not exists (
              select 1
                from relay_workers
               where relay_workers.owner = lane_leases.owner
                 and relay_workers.expires_at > clock_timestamp())
        order by lane_leases.lane
          for update of lane_leases skip locked)
     update lane_leases
        set owner = :owner,
            token = lane_leases.token + 1,
            crashes = least(lane_leases.crashes + wanted.is_taken_over::integer, 32767),
            doubt = case when wanted.is_taken_over then (select last_value from outbox_seq_seq) else lane_leases.doubt end
       from wanted
      where lane_leases.lane = wanted.lane
     returning lane_leases.lane, lane_leases.token, lane_leases.crashes, lane_leases.doubt,
               (select last_value from outbox_seq_seq) as horizon`,
    { owner, lanes },
  )
  return rows.map(({ lane, token, crashes, horizon, doubt }) => ({
    lane,
    token: BigInt(token),
    crashes,
    horizon: BigInt(horizon),
    doubt: BigInt(doubt),
  }))
}

/**
 * Gives lanes back: free for anyone, and not counted as a crash. What is in
 * doubt stays so for whoever comes next. Changes nothing of lanes that are lost.
 */
export async function releaseLanes(db: Knex, owner: string, lanes: readonly LaneRelease[]): Promise<Settlement> {
  const ownership = { owner, leases: lanes }
  const { rows } = await db.raw<{ rows: { lane: number }[] }>(
    `update lane_leases
        set owner = null,
            doubt = greatest(lane_leases.doubt, claimed.doubt)
       from unnest(cast(:lanes as smallint[]), cast(:tokens as bigint[]), cast(:doubts as bigint[])) as claimed (lane, token, doubt)
      where lane_leases.lane = claimed.lane
        and lane_leases.token = claimed.token
        and lane_leases.owner = :owner
     returning lane_leases.lane`,
    { ...toLeaseColumns(ownership), doubts: lanes.map(({ doubt }) => String(doubt)) },
  )
  return toSettlement(ownership, { changed: rows.length, lanes: rows.map(({ lane }) => lane) })
}

/** Resets the crash count of lanes that are still ours. */
export async function resetCrashes(db: Knex, ownership: Ownership): Promise<Settlement> {
  const { rows } = await db.raw<{ rows: { lane: number }[] }>(
    `update lane_leases
        set crashes = 0
       from unnest(cast(:lanes as smallint[]), cast(:tokens as bigint[])) as claimed (lane, token)
      where lane_leases.lane = claimed.lane
        and lane_leases.token = claimed.token
        and lane_leases.owner = :owner
     returning lane_leases.lane`,
    toLeaseColumns(ownership),
  )
  return toSettlement(ownership, { changed: rows.length, lanes: rows.map(({ lane }) => lane) })
}

/** Forgets a worker: what it still owns can be claimed at once. */
export async function deleteWorker(db: Knex, owner: string): Promise<void> {
  await db('relay_workers').where({ owner }).delete()
}

/** How many live workers have not said yet that they are at rest for `adoption`. */
export async function countRestless(db: Knex, adoption: string): Promise<number> {
  const { rows } = await db.raw<{ rows: { count: number }[] }>(
    `select count(*)::integer as count
       from relay_workers
      where expires_at > clock_timestamp()
        and not (cast(:adoption as uuid) = any(rests_for))`,
    { adoption },
  )
  return rows[0]?.count ?? 0
}

/**
 * Keeps renewals out for the rest of the transaction: no worker comes to life
 * meanwhile, and none extends its life. A caller that goes quiet loses it before
 * any lease ends.
 */
export async function keepRenewalsOut(trx: Knex.Transaction): Promise<void> {
  await trx.raw("select set_config('idle_in_transaction_session_timeout', '2s', true)")
  await trx.raw('lock table relay_workers in exclusive mode')
}

/**
 * Takes the lanes of workers that are not alive, as a takeover does; resolves to
 * how many there were. Rejects with `lock_not_available` while a fenced write is under way in one of them:
 * it waits for nothing, since renewals may be waiting for this transaction.
 */
export async function freeVanishedLanes(trx: Knex.Transaction): Promise<number> {
  const { rowCount } = await trx.raw<{ rowCount: number }>(
    `with vanished as (
       select lane
         from lane_leases
        where owner is not null
          and not exists (
              select 1
                from relay_workers
               where relay_workers.owner = lane_leases.owner
                 and relay_workers.expires_at > clock_timestamp())
        order by lane
          for update nowait)
     update lane_leases
        set owner = null,
            crashes = least(crashes + 1, 32767),
            doubt = (select last_value from outbox_seq_seq)
       from vanished
      where lane_leases.lane = vanished.lane`,
  )
  return rowCount
}

/**
 * Bounds how long this transaction waits for a lock, and how long the server
 * keeps its locks when it goes quiet: a key that an operator has locked, or a
 * relay that freezes between two statements, would keep a lane from everybody.
 */
export async function boundLocks(trx: Knex.Transaction): Promise<void> {
  await trx.raw(
    `select set_config('lock_timeout', '2s', true),
            set_config('idle_in_transaction_session_timeout', '5s', true)`,
  )
}

/**
 * Locks one lane's lease for the rest of the transaction, if it is still ours.
 * For share: fenced writes do not wait for each other, and a takeover waits for
 * them.
 */
export async function lockLease(trx: Knex.Transaction, ownership: Ownership): Promise<boolean> {
  const { rows } = await trx.raw<{ rows: unknown[] }>(
    `select lane_leases.lane
       from lane_leases
       join unnest(cast(:lanes as smallint[]), cast(:tokens as bigint[])) as claimed (lane, token)
         on claimed.lane = lane_leases.lane
        and claimed.token = lane_leases.token
      where lane_leases.owner = :owner
        for share of lane_leases`,
    toLeaseColumns(ownership),
  )
  return rows.length === 1
}
