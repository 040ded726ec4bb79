/** Looks at the system four times a second, past the service: in the database, and at what its clients are answered. */
import { setTimeout as sleep } from 'node:timers/promises'
import knex, { type Knex } from 'knex'
import { CONSUMER } from '../support/system/evidence.ts'
import { findSteadiness, holdMs, type Look, type Steadiness, type Waits } from './steadiness.ts'

export interface Watch extends AsyncDisposable {
  /** Tells it of the events that a client was just answered. */
  answered(eventIds: readonly string[]): void
  /** What it has seen, oldest first. */
  readonly looks: readonly Look[]
  /**
   * Resolves to the first steady time that begins at `from` or later and within
   * `withinMs` of it, once it has held; to `null` when there is none.
   */
  steady(options: {
    readonly from: number
    readonly bounds: Waits
    readonly withinMs: number
  }): Promise<Steadiness | null>
}

/** Milliseconds between two looks: how finely a recovery is measured. */
const LOOK_MS = 250

/** Milliseconds after which a database that does not answer is called silent. */
const SILENT_MS = 2_000

/** Events whose effects are looked for at once, oldest first. */
const LOOKED_FOR = 2_000

/** Begins to look, over a connection of its own. */
export function startWatch(url: string): Watch {
  const db = openDatabase(url)
  const ended = new AbortController()
  const looks: Look[] = []
  /** Events without their effect, by when they were answered. */
  const open = new Map<string, number>()
  let answeredAt = performance.now()
  let next = Promise.withResolvers<void>()

  async function look(): Promise<Look> {
    const sought = [...open.keys()].slice(0, LOOKED_FOR)
    const seen = await ask(db, sought).catch(() => null)
    const at = performance.now()
    if (seen === null) return { at, waits: null, pending: looks.at(-1)?.pending ?? 0 }
    for (const id of seen.applied) open.delete(id)
    const [oldest = at] = open.values()
    return { at, waits: { broker: seen.waitedMs, effect: at - oldest, answer: at - answeredAt }, pending: seen.pending }
  }

  async function run(): Promise<void> {
    while (!ended.signal.aborted) {
      looks.push(await look())
      next.resolve()
      next = Promise.withResolvers()
      await sleep(LOOK_MS, undefined, { signal: ended.signal }).catch(() => {})
    }
  }

  const done = run()
  return {
    looks,
    answered(eventIds) {
      answeredAt = performance.now()
      for (const id of eventIds) open.set(id, answeredAt)
    },
    async steady({ from, bounds, withinMs }) {
      for (;;) {
        const since = looks.filter(({ at }) => at >= from)
        const found = findSteadiness(since, bounds)
        if (found) return found.at - from <= withinMs ? found : null
        if ((since.at(-1)?.at ?? from) - from > withinMs + holdMs(bounds)) return null
        await next.promise
      }
    },
    async [Symbol.asyncDispose]() {
      ended.abort()
      await done
      await db.destroy()
    },
  }
}

/** Gives up on a silent server soon, and says nothing about it. */
function openDatabase(url: string): Knex {
  return knex({
    client: 'pg',
    connection: { connectionString: url, connectionTimeoutMillis: SILENT_MS, query_timeout: SILENT_MS },
    acquireConnectionTimeout: SILENT_MS,
    pool: { min: 0, max: 1 },
    log: { warn: () => {}, error: () => {}, deprecate: () => {}, debug: () => {} },
  })
}

interface Seen {
  readonly pending: number
  readonly waitedMs: number
  /** Those of the events sought whose effect has happened. */
  readonly applied: readonly string[]
}

/** Served by the indexes of what is pending and held, and by the inbox's primary key: a look costs the same after an hour. */
async function ask(db: Knex, sought: readonly string[]): Promise<Seen> {
  const { rows } = await db.raw<{ rows: { pending: number; waited_ms: number; applied: string[] }[] }>(
    `with waiting as (
       select created_at
         from outbox
        where published_at is null
          and not held
        union all
       select created_at
         from outbox
        where published_at is null
          and held)
     select count(*)::integer as pending,
            coalesce(extract(epoch from clock_timestamp() - min(created_at)) * 1000, 0)::float as waited_ms,
            array(
              select event_id::text
                from processed_events
               where consumer = :consumer
                 and event_id = any(:sought::uuid[])) as applied
       from waiting`,
    { consumer: CONSUMER, sought },
  )
  const [{ pending, waited_ms: waitedMs, applied } = { pending: 0, waited_ms: 0, applied: [] }] = rows
  return { pending, waitedMs, applied }
}
