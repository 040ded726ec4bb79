/**
 * Pools of Postgres connections, one kind a role, that fail within seconds and
 * never lend a connection that somebody left dirty.
 */
import knex, { type Knex } from 'knex'
import type { Logger } from '../messaging/index.ts'
import type { PostgresConnection } from './postgres-url.ts'
import { observePool } from './telemetry-gauges.ts'

/** How one role uses the database. All times in milliseconds. */
export interface PoolProfile {
  readonly applicationName: string
  readonly connectionCount: number
  /** After which the server cancels a statement. */
  readonly statementTimeoutMs: number
  /** After which we stop waiting for the server: a path that has died says nothing. Above the statement's own. */
  readonly queryTimeoutMs: number
  /** After which the server ends a transaction that has gone quiet. */
  readonly idleInTransactionMs: number
  /** After which waiting for a connection is an error. */
  readonly acquireTimeoutMs: number
}

/**
 * A client of the API waits for few seconds; a relay's statement is useless
 * once its lease has run out; a handler may take its time.
 */
const profiles = {
  api: {
    applicationName: 'orders-api',
    connectionCount: 10,
    statementTimeoutMs: 5_000,
    queryTimeoutMs: 7_000,
    idleInTransactionMs: 10_000,
    acquireTimeoutMs: 3_000,
  },
  relay: {
    applicationName: 'outbox-relay',
    connectionCount: 6,
    statementTimeoutMs: 8_000,
    queryTimeoutMs: 10_000,
    idleInTransactionMs: 10_000,
    acquireTimeoutMs: 5_000,
  },
  consumer: {
    applicationName: 'orders-summary',
    connectionCount: 10,
    statementTimeoutMs: 15_000,
    queryTimeoutMs: 20_000,
    idleInTransactionMs: 60_000,
    acquireTimeoutMs: 5_000,
  },
  /** Migrations wait for each other and build indexes. */
  migration: {
    applicationName: 'orders-migration',
    connectionCount: 2,
    statementTimeoutMs: 0,
    queryTimeoutMs: 0,
    idleInTransactionMs: 0,
    acquireTimeoutMs: 10_000,
  },
} as const satisfies Record<string, PoolProfile>

export type PoolRole = keyof typeof profiles

/** The part of node-postgres's client that we look at. */
interface RawConnection {
  readonly __knexUid: string
  __knex__disposed?: unknown
  getTransactionStatus(): string | null
  on(event: 'end', listener: () => void): void
  readonly readyForQuery: boolean
  readonly connection: { readonly stream: { destroy(): void } }
}

/** A pool for `role`, with `changes` to its profile. Opens nothing until asked; close it with `destroy()`. */
export function createDatabase(
  server: PostgresConnection,
  role: PoolRole,
  logger: Logger,
  changes: Partial<PoolProfile> = {},
): Knex {
  const profile: PoolProfile = { ...profiles[role], ...changes }
  const connections = new Map<string, RawConnection>()
  const db = knex({
    client: 'pg',
    connection: {
      ...server,
      application_name: profile.applicationName,
      statement_timeout: profile.statementTimeoutMs,
      query_timeout: profile.queryTimeoutMs,
      idle_in_transaction_session_timeout: profile.idleInTransactionMs,
      connectionTimeoutMillis: 5_000,
      // The kernel alone would take a quarter of an hour to call a silent path dead.
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
    },
    acquireConnectionTimeout: profile.acquireTimeoutMs,
    pool: {
      min: 0,
      max: profile.connectionCount,
      idleTimeoutMillis: 60_000,
      afterCreate(connection: RawConnection, done: (error: Error | null, connection: RawConnection) => void) {
        connections.set(connection.__knexUid, connection)
        connection.on('end', () => connections.delete(connection.__knexUid))
        done(null, connection)
      },
      // Knex gives a connection back after five seconds even if its ROLLBACK has not been answered.
      validate: isClean,
    },
    // Otherwise the message of a failed statement has the values in it.
    compileSqlOnError: false,
    log: {
      warn: (message: unknown) => logger.warn({ pool: role }, firstLine(message)),
      error: (message: unknown) => logger.error({ pool: role }, firstLine(message)),
      deprecate: (message: unknown) => logger.debug({ pool: role }, firstLine(message)),
      debug: (message: unknown) => logger.debug({ pool: role }, firstLine(message)),
    },
  })

  // A statement that nobody waits for any more still runs: its connection is
  // closed at once, so that no later statement waits behind it.
  db.on('query-error', (error: Error, { __knexUid }: { __knexUid: string }) => {
    if (error.message !== 'Query read timeout') return
    const connection = connections.get(__knexUid)
    if (!connection) return
    connection.__knex__disposed = error
    connection.connection.stream.destroy()
  })
  // Migrations' pool lives for seconds.
  if (role !== 'migration') observePool(role, db)
  return db
}

/** Knex puts whole stacks of the pool into its messages. */
function firstLine(message: unknown): string {
  return String(message).split('\n', 1)[0] ?? ''
}

/** Whether a connection of the pool can be lent: it is idle, and in no transaction. */
function isClean(connection: RawConnection): boolean {
  return connection.readyForQuery && (connection.getTransactionStatus() ?? 'I') === 'I'
}
