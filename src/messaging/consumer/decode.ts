/**
 * From a record on a topic back to the envelope that the relay made it from.
 *
 * Never throws of a record of a topic that is subscribed to: one that is not ours
 * is a value, and a payload is parsed only when a handler is about to get it.
 */
import { v5 as uuidv5 } from 'uuid'
import type { AggregateRef, Envelope, TraceContext } from '../envelope.ts'
import { parseJson } from '../json.ts'
import type { IncomingRecord, TopicPartition } from '../transport.ts'
import type { ReceivedEvent } from './handlers.ts'

/** Why a record is not an event of ours. A name with a zero character counts as none: Postgres cannot store it. */
export type ForeignReason = 'NO_EVENT_ID' | 'EVENT_ID_NOT_UUID' | 'NO_EVENT_TYPE' | 'NO_KEY'

/** One record with what it means. */
export type Decoded =
  | { readonly kind: 'event'; readonly delivery: EventDelivery }
  | {
      readonly kind: 'foreign'
      readonly where: TopicPartition
      readonly record: IncomingRecord
      readonly reason: ForeignReason
    }

/** An envelope at the place where it arrived. */
export interface EventDelivery {
  readonly envelope: Envelope
  readonly where: TopicPartition
  readonly record: IncomingRecord
  /** When the event's row was created, as near as the record tells. */
  readonly createdAt: Date
}

export interface DecodeOptions {
  /** The aggregate type of a topic's records that do not carry one. Throws for no topic that is subscribed to. */
  readonly aggregateTypeOf: (topic: string) => string
  /** Gives a record without usable `event_id` the UUIDv5 of its topic, partition and offset. */
  readonly deriveIds: boolean
}

/** The payload is no JSON. It never will be, so no further attempt is made. */
export class UndecodablePayloadError extends Error {
  override readonly name = 'UndecodablePayloadError'
  readonly code = 'UNDECODABLE_PAYLOAD'

  constructor() {
    // Without the parser's own error, whose message quotes the payload.
    super('The payload is not valid JSON')
  }
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/
const TRACE_HEADERS = ['traceparent', 'tracestate'] as const
const ENVELOPE_HEADERS: ReadonlySet<string> = new Set([
  'event_id',
  'event_type',
  'aggregate_type',
  'aggregate_version',
  'occurred_at',
  ...TRACE_HEADERS,
])
// The namespace of ids that are derived from a place; any constant uuid does.
const DERIVED_IDS = '6f0d2c1e-8f3b-5d55-9a44-0c1c8d7a2b90'

/** Reads one record. Header names and values are text; unknown headers stay the event's own. */
export function decode(where: TopicPartition, record: IncomingRecord, options: DecodeOptions): Decoded {
  const { headers } = record
  const foreign = (reason: ForeignReason): Decoded => ({ kind: 'foreign', where, record, reason })

  const key = usableText(record.key?.toString('utf8'))
  if (key === null) return foreign('NO_KEY')
  const id = usableId(headers.event_id) ?? (options.deriveIds ? derivedId(where, record) : null)
  if (id === null) return foreign(usableText(headers.event_id) === null ? 'NO_EVENT_ID' : 'EVENT_ID_NOT_UUID')
  const type = usableText(headers.event_type)
  if (type === null) return foreign('NO_EVENT_TYPE')

  const aggregateType = usableText(headers.aggregate_type) ?? options.aggregateTypeOf(where.topic)
  const aggregate: AggregateRef = { type: aggregateType, id: key }
  const occurredAt = usableDate(headers.occurred_at) ?? record.timestamp
  return {
    kind: 'event',
    delivery: {
      where,
      record,
      createdAt: timeOfUuid(id) ?? occurredAt,
      envelope: {
        id,
        type,
        aggregate,
        version: usableVersion(headers.aggregate_version),
        payload: record.value === null ? null : record.value.toString('utf8'),
        occurredAt,
        headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !ENVELOPE_HEADERS.has(name))),
        trace: traceOf(headers),
      },
    },
  }
}

/** The event as a handler gets it. Throws {@link UndecodablePayloadError}. */
export function receive({ envelope, where, record }: EventDelivery): ReceivedEvent {
  const { payload: payloadText, ...rest } = envelope
  return {
    ...rest,
    payload: payloadText === null ? null : parse(payloadText),
    payloadText,
    source: { topic: where.topic, partition: where.partition, offset: record.offset },
  }
}

/** The aggregate type that the default topic rule put into a topic's name; the whole name where it follows no such rule. */
export function defaultAggregateTypeOf(prefix: string): (topic: string) => string {
  return (topic) => {
    const local = topic.startsWith(prefix) && topic !== prefix ? topic.slice(prefix.length) : topic
    return local.endsWith('.events') && local !== '.events' ? local.slice(0, -'.events'.length) : local
  }
}

function parse(text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    throw new UndecodablePayloadError()
  }
}

function usableId(text: string | undefined): string | null {
  const id = text?.toLowerCase()
  return id && UUID.test(id) ? id : null
}

function usableText(text: string | undefined): string | null {
  return text && !text.includes('\0') ? text : null
}

/** With the record's time: a topic made anew has other records at the same places. */
function derivedId({ topic, partition }: TopicPartition, { offset, timestamp }: IncomingRecord): string {
  return uuidv5(`${topic}/${partition}/${offset}/${timestamp.getTime()}`, DERIVED_IDS)
}

function usableVersion(text: string | undefined): number | null {
  const version = text && /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  return Number.isSafeInteger(version) ? version : null
}

function usableDate(text: string | undefined): Date | null {
  const date = text === undefined ? null : new Date(text)
  return date && !Number.isNaN(date.getTime()) ? date : null
}

/** A UUIDv7 begins with the milliseconds at which it was made: the append. */
function timeOfUuid(id: string): Date | null {
  return id[14] === '7' ? new Date(Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)) : null
}

/** The trace context of a record; `null` when it has none. */
export function traceOf(headers: Readonly<Record<string, string>>): TraceContext | null {
  const [traceparent, tracestate] = TRACE_HEADERS.map((name) => headers[name])
  if (!traceparent) return null
  return tracestate ? { traceparent, tracestate } : { traceparent }
}
