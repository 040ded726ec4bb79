/**
 * Turns a domain event into what is stored: checked, with identity, time, hash
 * and text. Pure but for the clock and the id, and done for all events before
 * the first statement, so that a refused event leaves nothing behind.
 */
import { v7 as uuidv7 } from 'uuid'
import type { AggregateRef, DomainEvent } from '../envelope.ts'
import { InvalidEventError } from '../errors.ts'
import { laneOf, murmur2 } from './lane.ts'
import { payloadText, UnstorablePayload, unstorableText } from './payload.ts'

/** Bytes of UTF-8 that an aggregate's id may have: it is indexed, and a key on every record. */
export const MAX_KEY_BYTES = 1_024

/** Characters that an aggregate's type, an event's type or a header's name may have. */
export const MAX_NAME_LENGTH = 200

/** Header names that the envelope itself writes. Compared without regard to case. */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  'event_id',
  'event_type',
  'aggregate_type',
  'aggregate_version',
  'occurred_at',
  'traceparent',
  'tracestate',
  'original_event_id',
  'outbox_replay',
])

/** What an event may have. A field that is misspelt would be missing in silence. */
const EVENT_FIELDS = {
  type: true,
  aggregate: true,
  version: true,
  payload: true,
  occurredAt: true,
  headers: true,
} as const satisfies Record<keyof DomainEvent, true>

const AGGREGATE_FIELDS = { type: true, id: true } as const satisfies Record<keyof AggregateRef, true>

/** An event as text and numbers, ready for its row. */
export interface SealedEvent {
  readonly id: string
  readonly type: string
  readonly aggregate: AggregateRef
  readonly version: number | null
  /** JSON text as it was given; Postgres may write it differently. */
  readonly payload: string | null
  readonly occurredAt: Date
  readonly headers: Readonly<Record<string, string>>
  readonly keyHash: number
  readonly lane: number
}

/** Checks and seals event number `index`. Throws {@link InvalidEventError} with index, field and rule, never a value. */
export function seal(event: DomainEvent, index: number): SealedEvent {
  const refuse: Refusal = (field, rule, cause) => {
    throw new InvalidEventError(field, rule, cause === undefined ? { index } : { index, cause })
  }
  if (typeof event !== 'object' || event === null) refuse('event', 'must be an object')

  for (const field of Object.keys(event)) {
    if (!Object.hasOwn(EVENT_FIELDS, field)) {
      refuse(field, `is not a field of an event; those are ${Object.keys(EVENT_FIELDS).join(', ')}`)
    }
  }
  const { type, aggregate, version, occurredAt = new Date(), headers = {} } = event
  checkName('type', type, refuse)
  checkAggregate(aggregate, refuse)
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 0)) {
    refuse('version', 'must be a whole number from 0 to 2^53 - 1')
  }
  checkTime(occurredAt, refuse)
  checkHeaders(headers, refuse)

  const keyHash = murmur2(aggregate.id)
  return {
    id: uuidv7(),
    type,
    aggregate: { type: aggregate.type, id: aggregate.id },
    version: version ?? null,
    payload: checkedPayload(event.payload, refuse),
    occurredAt,
    headers: { ...headers },
    keyHash,
    lane: laneOf(keyHash),
  }
}

type Refusal = (field: string, rule: string, cause?: unknown) => never

function checkName(field: string, name: unknown, refuse: Refusal): void {
  if (typeof name !== 'string' || name === '' || name.length > MAX_NAME_LENGTH) {
    refuse(field, `must be text of 1 to ${MAX_NAME_LENGTH} characters`)
  }
  const problem = unstorableText(name)
  if (problem !== null) refuse(field, problem)
}

function checkAggregate(aggregate: AggregateRef | undefined, refuse: Refusal): void {
  if (typeof aggregate !== 'object' || aggregate === null) refuse('aggregate', 'must name a type and an id')
  for (const field of Object.keys(aggregate)) {
    if (!Object.hasOwn(AGGREGATE_FIELDS, field))
      refuse(`aggregate.${field}`, 'is not a field of an aggregate; those are type, id')
  }
  checkName('aggregate.type', aggregate.type, refuse)
  // The type is part of the topic's name.
  if (!/^[A-Za-z0-9._-]+$/.test(aggregate.type)) {
    refuse('aggregate.type', 'may have letters, digits, ".", "_" and "-" only, as Kafka topics do')
  }
  if (typeof aggregate.id !== 'string' || aggregate.id === '') refuse('aggregate.id', 'must be text, not empty')
  if (Buffer.byteLength(aggregate.id) > MAX_KEY_BYTES) {
    refuse('aggregate.id', `may have at most ${MAX_KEY_BYTES} bytes`)
  }
  const problem = unstorableText(aggregate.id)
  if (problem !== null) refuse('aggregate.id', problem)
}

function checkTime(occurredAt: Date, refuse: Refusal): void {
  const year = occurredAt instanceof Date ? occurredAt.getUTCFullYear() : Number.NaN
  if (!(year >= 1 && year <= 9_999)) refuse('occurredAt', 'must be a valid Date in the years 1 to 9999')
}

function checkHeaders(headers: Readonly<Record<string, string>>, refuse: Refusal): void {
  // A list's places would be names, and a Map's entries or those of Headers nowhere.
  if (!isPlainObject(headers)) refuse('headers', 'must be a plain object of texts')
  for (const [name, value] of Object.entries(headers)) {
    checkName('headers', name, (field, rule) => refuse(field, `has a name that ${rule}`))
    // Also keeps names clear of escapes in JSON, which V8's parser can take for one another.
    if (!/^[!#-[\]-~]+$/.test(name)) refuse('headers', 'has a name with other than visible ASCII, or with " or \\')
    const field = `headers.${name}`
    if (RESERVED_HEADERS.has(name.toLowerCase())) refuse(field, 'is written by the outbox itself; choose another name')
    if (typeof value !== 'string') refuse(field, 'must be text')
    const problem = unstorableText(value)
    if (problem !== null) refuse(field, problem)
  }
}

function isPlainObject(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  // That of a plain object, of whatever realm, has none itself.
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

function checkedPayload(payload: unknown, refuse: Refusal): string | null {
  try {
    return payloadText(payload)
  } catch (error) {
    if (error instanceof UnstorablePayload) return refuse('payload', error.message, error.cause)
    throw error
  }
}
