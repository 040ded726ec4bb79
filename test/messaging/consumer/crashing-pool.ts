/**
 * A pool that is gone from its n-th statement on, as far as Postgres can tell:
 * all of its connections end without a word and no new one is made. What a
 * killed process leaves behind, at a point of the test's choice, in
 * milliseconds; the system tests kill whole processes.
 */
import type { Knex } from 'knex'
import type { TestDatabase } from '../../support/database.ts'

export interface CrashingPool {
  readonly db: Knex
  readonly crashed: boolean
}

interface RawConnection {
  readonly connection: { readonly stream: { destroy(): void } }
}

/** `at` counts from 1; `before` a statement is sent or `after` its answer has come. */
export function createCrashingPool(database: TestDatabase, at: number, when: 'before' | 'after'): CrashingPool {
  const connections: RawConnection[] = []
  const state = { crashed: false }
  const db = database.createPool({
    pool: {
      min: 0,
      max: 4,
      // Once it is gone it says so at once; until then a busy machine has its time.
      propagateCreateError: true,
      afterCreate: (connection: RawConnection, done: (error: Error | null, connection: RawConnection) => void) => {
        connections.push(connection)
        if (state.crashed) connection.connection.stream.destroy()
        done(state.crashed ? new Error('crashed') : null, connection)
      },
    },
    acquireConnectionTimeout: 30_000,
    // Knex would print what we do on purpose.
    log: { warn: () => {}, error: () => {}, debug: () => {}, deprecate: () => {} },
  })
  let statements = 0
  db.on(when === 'before' ? 'query' : 'query-response', () => {
    statements += 1
    if (statements !== at) return
    state.crashed = true
    for (const { connection } of connections) connection.stream.destroy()
  })
  return {
    db,
    get crashed() {
      return state.crashed
    },
  }
}
