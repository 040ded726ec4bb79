/**
 * What we use of Knex beyond its documented face, in one place: the Postgres
 * connection under a transaction, and a connection outside the pool.
 */
import type { Knex } from 'knex'

/** A connection of node-postgres, as far as we look at it. */
export interface PostgresConnection {
  query(text: string, values?: readonly unknown[]): Promise<{ rows: Record<string, unknown>[] }>
  /** Calls `listener` for each NOTIFY that arrives. */
  on(event: 'notification', listener: (notification: { readonly payload?: string }) => void): void
  /** Calls `listener` when the connection has ended, by whomever. */
  on(event: 'end', listener: () => void): void
  /** Knex's pool destroys a connection that has this set, instead of lending it again. */
  __knex__disposed?: unknown
  /** What speaks the protocol under it. */
  readonly connection: {
    readonly stream: { destroy(): void }
    /** Calls `listener` whenever the server is ready, with `I` when idle, `T` in a transaction, `E` in a failed one. */
    on(event: 'readyForQuery', listener: (message?: { readonly status?: string }) => void): void
  }
}

/** Milliseconds that a server has to hear of a connection's end. */
const CLOSE_MS = 1_000

interface PostgresClient {
  /** `pg` for what node-postgres serves, subclasses of Knex's client included. */
  readonly driverName: string
  /** The same object for a pool and all of its transactions. */
  readonly config: object
  acquireConnection(): Promise<PostgresConnection>
  acquireRawConnection(): Promise<PostgresConnection>
  destroyRawConnection(connection: PostgresConnection): Promise<void>
}

const idleByConnection = new WeakMap<PostgresConnection, { now: boolean }>()

/**
 * Follows whether the server calls `connection` idle, from the first call on:
 * `now` is true once it has said so last. Call it while a transaction is open,
 * as until the server speaks again it counts as not idle.
 *
 * Listens to the protocol itself: the client's own word for it exists from pg
 * 8.21 on, and an application brings the pg that it has.
 */
export function idleness(connection: PostgresConnection): { readonly now: boolean } {
  const known = idleByConnection.get(connection)
  if (known) return known
  const idle = { now: false }
  idleByConnection.set(connection, idle)
  connection.connection.on('readyForQuery', (message) => {
    idle.now = message?.status === 'I'
  })
  return idle
}

/** The connection that `trx` runs on. It stays the transaction's: nothing needs to be given back. */
export async function connectionOf(trx: Knex.Transaction): Promise<PostgresConnection> {
  return await clientOf(trx).acquireConnection()
}

/**
 * The command that Postgres says it has carried out, from what Knex's
 * `trx.commit()` resolves to: `COMMIT`, or `ROLLBACK` where the transaction had
 * failed. `null` if it cannot be told.
 */
export function commandOf(answer: unknown): string | null {
  const command = (answer as { response?: { command?: unknown } } | undefined)?.response?.command
  return typeof command === 'string' ? command : null
}

/** Opens a connection of our own, with the settings of `db` and outside its pool. Close it with {@link closeConnection}. */
export async function openConnection(db: Knex): Promise<PostgresConnection> {
  return await clientOf(db).acquireRawConnection()
}

/**
 * Closes what {@link openConnection} opened. Never rejects: a connection that
 * cannot be closed is closed already. A server that does not answer is not
 * waited for: the path to it may be dead.
 */
export async function closeConnection(db: Knex, connection: PostgresConnection): Promise<void> {
  const timer = setTimeout(() => connection.connection.stream.destroy(), CLOSE_MS)
  try {
    await clientOf(db).destroyRawConnection(connection)
  } catch {
    connection.connection.stream.destroy()
  } finally {
    clearTimeout(timer)
  }
}

/** What tells one database handle from another, for handles and their transactions alike. */
export function handleOf(db: Knex): object {
  return clientOf(db).config
}

function clientOf(db: Knex): PostgresClient {
  return db.client
}

/** Opens a savepoint: of a callback, with which it ends, or without one. */
export type OpenSavepoint = (callback: unknown, ...rest: unknown[]) => Promise<unknown>

/** Has all savepoints of `trx` opened by what `wrap` makes of Knex's own way. */
export function wrapSavepoints(trx: Knex.Transaction, wrap: (original: OpenSavepoint) => OpenSavepoint): void {
  // The handle's methods cannot be changed, and lead here.
  const { context } = trx as unknown as { context: { transaction: OpenSavepoint } }
  context.transaction = wrap(context.transaction.bind(context))
}
