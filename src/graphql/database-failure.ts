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
  // Not by `instanceof`: an error may come from another realm or thread.
  if (typeof error !== 'object' || error === null) return false
  const { name = '', message = '', code = '', cause } = error as Partial<Record<string, unknown>>
  // A transaction that was rolled back names what had failed as its cause.
  if (cause !== undefined && isDatabaseUnavailable(cause)) return true
  // The pool had no connection to give in time, or is being closed.
  if (name === 'KnexTimeoutError' || name === 'TimeoutError' || message === 'aborted') return true
  return PASSING.test(String(code)) || SOCKET_CODES.has(String(code)) || CONNECTION_WORDS.test(String(message))
}
