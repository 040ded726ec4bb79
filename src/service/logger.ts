/**
 * The log: one JSON object a line on standard output, with the trace it belongs to.
 *
 * What an error says is passed on with care: Postgres puts stored values into
 * its messages, so of its errors only codes and names are written.
 */
import { isSpanContextValid, trace } from '@opentelemetry/api'
import pino from 'pino'
import { isDatabaseUnavailable } from '../graphql/database-failure.ts'
import type { Logger } from '../messaging/index.ts'
import { stackFrames } from '../messaging/telemetry/stack-frames.ts'
import type { LogLevel } from './config.ts'

/** Whose lines these are. */
export interface LoggerIdentity {
  readonly service: string
  /** `main`, `relay-0`, `consumer`. */
  readonly thread: string
}

/** A logger for one thread. Writes at once: what was logged before a crash is there after it. */
export function createLogger(
  identity: LoggerIdentity,
  level: LogLevel,
  destination: pino.DestinationStream = pino.destination({ fd: 1, sync: true }),
): Logger {
  return pino(
    {
      level,
      base: { ...identity },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      mixin: traceFields,
      serializers: { err: describeError, error: describeError, reason: describeIfError, cause: describeIfError },
      redact: {
        paths: [
          'password',
          'token',
          'authorization',
          'payload',
          'value',
          '*.password',
          '*.token',
          '*.authorization',
          '*.payload',
          '*.value',
        ],
        censor: '[redacted]',
      },
    },
    destination,
  )
}

function traceFields(): object {
  const span = trace.getActiveSpan()?.spanContext()
  if (!span || !isSpanContextValid(span)) return {}
  return { trace_id: span.traceId, span_id: span.spanId, trace_flags: span.traceFlags.toString(16).padStart(2, '0') }
}

/** Facts that our own errors carry as fields; none of them is a value of the application. */
const FACTS = [
  'code',
  'kind',
  'outcome',
  'reason',
  'topic',
  'partition',
  'option',
  'field',
  'syscall',
  'errno',
] as const

/** Facts of a Postgres error that name things of the schema. */
const POSTGRES_FACTS = ['code', 'severity', 'schema', 'table', 'column', 'constraint', 'routine'] as const

/** SQLSTATE classes whose messages name users, databases and limits, and never a value: no connection, no entry, no room. */
const HARMLESS = /^(08|28|3D|53|57|58)/

/** Classes of a connection that does not come about, which say all that there is to say. */
const UNLET = /^(28|3D)/

/** What may be written of `error`: never a stored value, at most three causes deep. Never throws, whatever it is. */
export function describeError(error: unknown, depth = 0): unknown {
  try {
    return isError(error) ? describeReadable(error, depth) : { message: `thrown: ${typeof error}` }
  } catch {
    // A getter of it throws, or it is a proxy.
    return { message: 'thrown: an error that cannot be looked at' }
  }
}

function describeReadable(error: Error, depth: number): object {
  const fromPostgres = 'severity' in error && 'routine' in error
  const facts = pick(error, fromPostgres ? POSTGRES_FACTS : FACTS)
  const message = fromPostgres && !HARMLESS.test(String(facts.code)) ? 'Postgres refused a statement' : error.message
  return {
    type: error.name,
    message,
    ...facts,
    // Where a connection was waited for says nothing of why there was none, and fills a page at each try.
    ...(!isDatabaseUnavailable(alone(error)) &&
      !(fromPostgres && UNLET.test(String(facts.code))) && { stack: frames(error) }),
    ...(error.cause !== undefined && depth < 3 && { cause: describeError(error.cause, depth + 1) }),
    ...('errors' in error &&
      Array.isArray(error.errors) &&
      depth < 3 && { errors: error.errors.slice(0, 5).map((each) => describeError(each, depth + 1)) }),
  }
}

/** The error without its causes: what wraps one keeps its place. */
function alone({ name, message, ...fields }: Error): object {
  return { name, message, code: 'code' in fields ? fields.code : undefined }
}

/** Not by `instanceof` alone: an error may come from another realm. */
function isError(value: unknown): value is Error {
  try {
    return (
      value instanceof Error || (typeof value === 'object' && value !== null && 'stack' in value && 'message' in value)
    )
  } catch {
    // A proxy that does not say what it is: taken for an error, of which is told what it lets be read.
    return true
  }
}

function describeIfError(value: unknown): unknown {
  return isError(value) ? describeError(value) : value
}

function pick(error: Error, names: readonly string[]): Record<string, unknown> {
  const fields = error as unknown as Record<string, unknown>
  return Object.fromEntries(
    names.filter((name) => fields[name] !== undefined && fields[name] !== null).map((name) => [name, fields[name]]),
  )
}

/** Where it was thrown. */
function frames(error: Error): string {
  return stackFrames(error)
    .map((line) => line.trim())
    .slice(0, 12)
    .join('\n')
}
