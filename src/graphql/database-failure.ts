/** Tells a database that is away, full or busy from a statement that is wrong. */

/**
 * SQLSTATEs, by class or in full, under which a statement did nothing and may
 * do better later: connection lost, too few resources, lock or statement
 * timeout, shutting down, conflict with another transaction, a standby.
 */
const PASSING = /^(08...|53...|57...|55P03|40001|40P01|25006|25P03)$/

/** Node's words for a socket that does not come about or does not last. */
const SOCKET_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
])

/** What pg says of a connection, in words alone: it gives these errors no code. */
const CONNECTION_WORDS =
  /Connection terminated|Query read timeout|timeout expired|not queryable|Client was closed|Connection ended unexpectedly/

/** Whether `error` says that the database could not do its work just now, and not that it was asked wrongly. */
export function isDatabaseUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  // A transaction that was rolled back names what had failed as its cause.
  if (error.cause !== undefined && isDatabaseUnavailable(error.cause)) return true
  // The pool had no connection to give in time, or is being closed.
  if (error.name === 'KnexTimeoutError' || error.name === 'TimeoutError' || error.message === 'aborted') return true
  const code = 'code' in error ? String(error.code) : ''
  return PASSING.test(code) || SOCKET_CODES.has(code) || CONNECTION_WORDS.test(error.message)
}
