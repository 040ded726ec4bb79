/** What the sessions of a database are doing, as Postgres tells: for tests that wait until one waits. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Knex } from 'knex'

/** Milliseconds between two looks, and for all of them. */
const LOOK_MS = 10
const GIVE_UP_MS = 60_000

/**
 * Resolves to the process id of a session of `db`'s own database that
 * `condition` describes, once there is one; rejects when none comes. Other
 * tests have sessions on the same server, and are none of its business.
 */
export async function untilSession(db: Knex, condition: string): Promise<number> {
  const deadline = performance.now() + GIVE_UP_MS
  for (;;) {
    const { rows } = await db.raw<{ rows: { pid: number }[] }>(
      `select pid
         from pg_stat_activity
        where datname = current_database()
          and pid <> pg_backend_pid()
          and ${condition}`,
    )
    const [session] = rows
    if (session) return session.pid
    if (performance.now() > deadline) throw new Error(`No session came with ${condition}`)
    await sleep(LOOK_MS)
  }
}

/** Resolves once a session of this database waits for a lock that another one has. */
export async function untilLockWait(db: Knex): Promise<void> {
  await untilSession(db, `wait_event_type = 'Lock'`)
}
