/**
 * Tells an outage of the consumer's database from an event that cannot be
 * handled: the one is waited out and costs nothing, the other counts attempts.
 */
import { errorType, OTHER_ERROR } from '../telemetry/attributes.ts'
import { stackFrames } from '../telemetry/stack-frames.ts'
import { DatabaseWentBackError } from './stored-offsets.ts'

/** What an attempt was doing when it failed. */
export type AttemptPhase =
  /** Getting a connection and beginning. */
  | 'begin'
  /** Our own statements, before any handler. */
  | 'prepare'
  /** The application's handler. */
  | 'handle'
  /** Our last statements and COMMIT. */
  | 'finish'

/** Why an attempt failed, in words that hold no value of anybody's. */
export interface AttemptFailure {
  readonly kind: 'outage' | 'event' | 'stopped'
  /** The error's code or class: `23505`, `ECONNREFUSED`, `TypeError`. */
  readonly reason: string
  /**
   * Reason and place in short, for operators, alike in logs, status and lists: `TypeError at orders/summary.ts:12:5`,
   * `23502 (table greetings, column line)`. Unlike the reason, no label for metrics.
   */
  readonly detail: string
  readonly error: unknown
}

/** A handler has taken longer than `handlerTimeoutMs`. Its transaction has ended by force. */
export class HandlerTimeoutError extends Error {
  override readonly name = 'HandlerTimeoutError'
  readonly code = 'HANDLER_TIMEOUT'

  constructor(timeoutMs: number) {
    super(`The handler has not returned within ${timeoutMs} ms`)
  }
}

/** The consumer stops, and the grace period is over: the attempt was given up and counts for nothing. */
export class StoppedError extends Error {
  override readonly name = 'StoppedError'
  readonly code = 'STOPPED'
}

/** What stands for an error that cannot be looked at: a getter of it throws, or it is a proxy. */
class UnreadableError extends Error {
  override readonly name = 'UnreadableError'
  readonly code = OTHER_ERROR
  /** Where this one is made says nothing of where the other was thrown. */
  override readonly stack = ''

  constructor() {
    super('What was thrown cannot be looked at')
  }
}

/**
 * Never throws, whatever a handler has thrown: an error that cannot be looked
 * at counts as any other, and is replaced, so that nobody has to look at it again.
 *
 * A handler's connection error is the database's only where the attempt's own
 * connection is gone; otherwise it comes from some other system that the handler
 * talks to, and counts.
 */
export function classify(error: unknown, phase: AttemptPhase, connection: ConnectionFate): AttemptFailure {
  try {
    return classifyReadable(error, phase, connection)
  } catch {
    return classifyReadable(new UnreadableError(), phase, connection)
  }
}

/** What has become of an attempt's connection to Postgres. */
export interface ConnectionFate {
  readonly isSevered: boolean
  /** What it ended by, as the server said; `null` where it did not. */
  readonly failure: Error | null
}

/** It is there, for all that is known. */
export const NOT_SEVERED: ConnectionFate = { isSevered: false, failure: null }

function classifyReadable(
  error: unknown,
  phase: AttemptPhase,
  { isSevered, failure: ending }: ConnectionFate,
): AttemptFailure {
  // The server tells the connection, and the statements after it know only that it is gone.
  const idled = [ending, error].find(endedByHandler)
  const reason = errorType(idled ?? error)
  const failure = { reason, detail: inShort(`${reason}${objectsOf(error)}`, whereIn(error)), error }
  if (error instanceof StoppedError) return { ...failure, kind: 'stopped' }
  if (error instanceof HandlerTimeoutError) return { ...failure, kind: 'event' }
  if (error instanceof DatabaseWentBackError) return { ...failure, kind: 'outage' }
  // Before a handler runs there is nothing of the event's in it, whatever it is: a missing table, a wrong password.
  if (phase === 'begin' || phase === 'prepare') return { ...failure, kind: 'outage' }
  if (isPassing(codeOf(error))) return { ...failure, kind: 'outage' }
  return { ...failure, kind: isSevered && !idled ? 'outage' : 'event' }
}

// Connection exceptions; shutdown and start-up; too many connections, disk, memory; a primary that became a
// standby; conflicts with another transaction, which the next attempt does not meet.
const PASSING = /^(08...|57P0[1-5]|53...|58...|25006|40001|40P01|40003)$/

function isPassing(code: string): boolean {
  return PASSING.test(code)
}

/** Postgres ends the connection of a handler that idles in its transaction for too long: that is the handler's doing. */
function endedByHandler(error: unknown): boolean {
  return ['25P03', '25P04'].includes(codeOf(error))
}

function codeOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : null
  return typeof code === 'string' ? code : ''
}

/** This library's folder, as stacks have it. */
const LIBRARY = new URL('..', import.meta.url).pathname

/** The innermost frame outside our own and foreign packages, for the one who has to mend it. */
function whereIn(error: unknown): string | null {
  if (!(error instanceof Error)) return null
  return stackFrames(error).find((line) => !/node_modules|node:/.test(line) && !line.includes(LIBRARY)) ?? null
}

const NAME = /^[\w.$-]{1,63}$/

/** What Postgres says an error is about, by the names in the schema; never its message or detail, which quote values. */
function objectsOf(error: unknown): string {
  if (!(error instanceof Error)) return ''
  const { table, column, constraint } = error as { table?: unknown; column?: unknown; constraint?: unknown }
  const named = Object.entries({ table, column, constraint }).flatMap(([kind, name]) =>
    typeof name === 'string' && NAME.test(name) ? [`${kind} ${name}`] : [],
  )
  return named.length === 0 ? '' : ` (${named.join(', ')})`
}

/** What is stored and told of a place: no control character, which Postgres may refuse and a terminal obey. */
const PLACE = /^[\p{L}\p{M}\p{N}_.@%+~$/-]{1,100}$/u

/** File and line alone, never a whole path: a function may be named after a value, and a folder after anything. */
function inShort(reason: string, at: string | null): string {
  const [, path, line] = /([^\s()]+?):(\d+(?::\d+)?)\)?$/.exec(at ?? '') ?? []
  if (path === undefined) return reason
  const place = path
    .replace(/^file:/, '')
    .split(/[\\/]/)
    .filter(Boolean)
    .slice(-2)
    .join('/')
  return PLACE.test(place) ? `${reason} at ${place}:${line}` : reason
}
