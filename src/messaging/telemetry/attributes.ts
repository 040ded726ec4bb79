/**
 * The names of every attribute that our spans and metrics carry.
 *
 * `messaging.*` and `error.type` are OpenTelemetry's semantic conventions;
 * `outbox.*` is ours. An event's id, key, offset or error text is never a
 * metric's attribute: each value would be a series of its own.
 */
import { InvalidOptionError, MessagingError } from '../errors.ts'

export const ATTR_SYSTEM = 'messaging.system'
export const ATTR_OPERATION_NAME = 'messaging.operation.name'
export const ATTR_OPERATION_TYPE = 'messaging.operation.type'
export const ATTR_DESTINATION = 'messaging.destination.name'
export const ATTR_PARTITION = 'messaging.destination.partition.id'
export const ATTR_MESSAGE_ID = 'messaging.message.id'
export const ATTR_BODY_SIZE = 'messaging.message.body.size'
export const ATTR_KEY = 'messaging.kafka.message.key'
export const ATTR_OFFSET = 'messaging.kafka.offset'
export const ATTR_CLIENT_ID = 'messaging.client.id'
export const ATTR_GROUP = 'messaging.consumer.group.name'
export const ATTR_BATCH_COUNT = 'messaging.batch.message_count'
export const ATTR_ERROR_TYPE = 'error.type'

export const ATTR_OUTBOX = 'outbox.name'
export const ATTR_EVENT_TYPE = 'outbox.event.type'
/** Seconds from the row's creation to the attempt. */
export const ATTR_DELAY = 'outbox.delay'
/** Counts from 1. */
export const ATTR_ATTEMPT = 'outbox.attempt'
/** On a root span that would have been a child, had its event been younger. */
export const ATTR_DETACHED = 'outbox.trace.detached'
/** Why a trace was detached: old, replay, malformed. */
export const ATTR_DETACHED_REASON = 'outbox.trace.detached.reason'
/** On the root of a batch's trace, which the library itself has decided to record: a sampler should follow. */
export const ATTR_BATCH = 'outbox.batch'
/** What became of a delivery: processed, duplicate, retry, dead_lettered, waiting, skipped, unknown_type. */
export const ATTR_RESULT = 'outbox.result'
/** Seconds from the row's creation to the end of the delivery. */
export const ATTR_DELIVERY_DELAY = 'outbox.delivery.delay'
/** The inbox's verdict: new, duplicate. */
export const ATTR_DEDUPE_RESULT = 'outbox.dedupe.result'
export const ATTR_CONSUMER = 'outbox.consumer.name'
/** What a read of the outbox found: rows, empty, error. */
export const ATTR_POLL_RESULT = 'outbox.poll.result'
/** Which thread: relay-0. */
export const ATTR_THREAD = 'thread'
/** Which way of waking is in use (process, notify, poll), or which fault of order was seen (gap, reversal). */
export const ATTR_KIND = 'kind'
export const ATTR_MODE = 'mode'
export const ATTR_REASON = 'reason'

/** The value of `messaging.system`. */
export const KAFKA = 'kafka'

let name = 'outbox'

/**
 * Names this thread's outbox in spans and metrics, so that two services in one
 * Prometheus stay apart. Call it once in each thread, before anything runs.
 * @defaultValue `outbox`
 * @throws InvalidOptionError unless it is 1 to 100 letters, digits, dots, dashes or underscores
 */
export function setOutboxName(outbox: string): void {
  if (typeof outbox !== 'string' || !/^[\w.-]{1,100}$/.test(outbox)) {
    throw new InvalidOptionError('outbox', outbox, '1 to 100 letters, digits, dots, dashes or underscores')
  }
  name = outbox
}

/** The value of `outbox.name` in this thread. */
export function outboxName(): string {
  return name
}

/** What an error is called whose own word is not fit for a label. */
export const OTHER_ERROR = '_OTHER'

/**
 * What an error is called in `error.type`: the `reason` of one of ours, the `code` or
 * class that it states, bounded in length and alphabet, and for metrics also in number by
 * `rememberErrorTypes`. Never its message, which may hold values. Never throws:
 * what cannot be looked at, for a getter that throws, is `_OTHER`.
 */
export function errorType(error: unknown): string {
  try {
    return errorWord(statedType(error))
  } catch {
    return OTHER_ERROR
  }
}

/** What an error states, where it is fit for a label. */
export function errorWord(stated: string): string {
  return /^[\w.:-]{1,64}$/.test(stated) ? stated : OTHER_ERROR
}

function statedType(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { reason, code } = error as { reason?: unknown; code?: unknown }
  // Of our own alone: what others keep in a field of that name may be anything.
  if (error instanceof MessagingError && typeof reason === 'string') return reason
  if (typeof code === 'string') return code
  return (error.name === 'Error' && driverTimeoutOf(error.message)) || error.name
}

/** What node-postgres says when nobody has answered in time, which has no code; to an operator `Error` would say nothing. */
const driverTimeouts: readonly (readonly [message: string, word: string])[] = [
  ['timeout expired', 'CONNECT_TIMEOUT'],
  ['Connection terminated due to connection timeout', 'CONNECT_TIMEOUT'],
  ['Query read timeout', 'QUERY_TIMEOUT'],
]

function driverTimeoutOf(message: string): string | null {
  // Knex puts the statement before it, unless its `compileSqlOnError` is false.
  const found = driverTimeouts.find(([end]) => message === end || message.endsWith(` - ${end}`))
  return found?.[1] ?? null
}
