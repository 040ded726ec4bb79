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
  /** Calls `listener` with what the server or the network says while no statement runs. */
  on(event: 'error', listener: (error: Error) => void): void
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
  /** Of tarn, or a pool of node-postgres in a wrapper of Knex, which tells nothing. */
  readonly pool?: { on?(event: 'acquireSuccess', listener: (id: number, connection: PostgresConnection) => void): void }
  destroyRawConnection(connection: PostgresConnection): Promise<void>
}

/** Why connections are cut, whoever uses them. */
export const GIVEN_UP = 'its client has given up waiting for a statement'
export const UNCLEAN = 'the transaction on it was not seen to end'

/** What is seen of a connection, from the first {@link watchConnection} of it on. */
export interface ConnectionWatch {
  /** Whether the server has said last that it is in no transaction; `false` until it speaks. */
  readonly isIdle: boolean
  /** Why we have cut it before anything else ended it; `null` where we have not. */
  readonly cutFor: string | null
  /** Whether it has ended, by whomever. */
  readonly hasEnded: boolean
  /** What the server or the network has said first when it ended; `null` while neither has. */
  readonly failure: Error | null
  /** Ends it at once, without a word to the server. The pool lends it to nobody. */
  cut(reason: string): void
}

const watches = new WeakMap<PostgresConnection, ConnectionWatch>()

/**
 * Watches `connection` from the first call on.
 *
 * It is cut as soon as its client gives up waiting for a statement
 * (`query_timeout`): that one still runs, or was dropped before it was sent. Of a
 * transaction with a statement of unknown outcome nothing may be committed, and
 * a ROLLBACK, a RELEASE or a BEGIN that was given up is such a statement.
 *
 * Listens to the protocol itself: the client's own word for being idle exists
 * from pg 8.21 on, and an application brings the pg that it has.
 */
export function watchConnection(connection: PostgresConnection): ConnectionWatch {
  const known = watches.get(connection)
  if (known) return known
  const watch: { -readonly [Part in keyof ConnectionWatch]: ConnectionWatch[Part] } = {
    isIdle: false,
    cutFor: null,
    hasEnded: false,
    failure: null,
    cut(reason) {
      connection.__knex__disposed ??= reason
      if (!watch.hasEnded && watch.failure === null) watch.cutFor ??= reason
      connection.connection.stream.destroy()
    },
  }
  watches.set(connection, watch)
  connection.connection.on('readyForQuery', (message) => {
    watch.isIdle = message?.status === 'I'
  })
  connection.on('error', (error) => {
    watch.failure ??= error
  })
  connection.on('end', () => {
    watch.hasEnded = true
  })
  onGivenUp(connection, () => watch.cut(GIVEN_UP))
  return watch
}

const watchedPools = new WeakSet<object>()

/**
 * Watches each connection that the pool of `db` lends from now on, to whomever:
 * one with a statement that was given up would be lent again, and all that
 * follow would wait behind that.
 */
export function watchPool(db: Knex): void {
  const { pool } = clientOf(db)
  if (!pool?.on || watchedPools.has(pool)) return
  watchedPools.add(pool)
  pool.on('acquireSuccess', (_id, connection) => watchConnection(connection))
}

/** Calls `listener` before anybody else hears that `connection` has given up a statement. */
function onGivenUp(connection: PostgresConnection, listener: () => void): void {
  const look = (error: unknown) => {
    // In words that a program in the server could raise as well; what the server says has a code.
    if (error instanceof Error && error.message === 'Query read timeout' && !('code' in error)) listener()
  }
  const query = connection.query.bind(connection) as (...args: unknown[]) => unknown
  const watched = (...args: unknown[]): unknown => {
    const callback = args.at(-1)
    // Without one it is a stream, of which the client also gives up those that have ended in time.
    if (typeof callback !== 'function') return query(...args)
    return query(...args.slice(0, -1), (error: unknown, result: unknown) => {
      look(error)
      callback(error, result)
    })
  }
  connection.query = watched as PostgresConnection['query']
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
