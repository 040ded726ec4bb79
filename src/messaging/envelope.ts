/**
 * What travels: a fact of the domain, and the same fact sealed for storage and transport.
 *
 * A `DomainEvent` is what application code states. An `Envelope` is that event
 * with identity, times and trace context: what the outbox stores, what a record
 * on the topic carries, and what a handler receives.
 */
import { requireText } from './options.ts'

/** The thing whose events are kept in order. */
export interface AggregateRef {
  /** What kind of thing, lower case: `order`. Decides the topic. */
  readonly type: string
  /** Which one. The record key on the topic, as UTF-8. Not empty. */
  readonly id: string
}

/** Text that is already JSON, stored as it stands. Made by `rawJson`. */
export interface RawJson {
  readonly rawJson: string
}

/**
 * Marks `text` as finished JSON: for big integers, decimals, or JSON null as a
 * value. Throws {@link InvalidOptionError} for what is no text; whether it is
 * JSON is seen at the append.
 */
export function rawJson(text: string): RawJson {
  requireText('text', text, 'JSON as text')
  return { rawJson: text }
}

/** A fact of the domain, in the past tense. What application code hands to the outbox. */
export interface DomainEvent<Type extends string = string, Payload = unknown> {
  /** `OrderShipped`. Consumers choose their handler by it. */
  readonly type: Type
  readonly aggregate: AggregateRef
  /** The aggregate's version after this event; travels as a header when given. */
  readonly version?: number
  /**
   * A JSON value, or `rawJson(text)`. JavaScript's `null` is a tombstone: a
   * record without value. A `bigint` is refused; use `rawJson`.
   */
  readonly payload: Payload | RawJson | null
  /** When it happened in the domain. @defaultValue the time of the append */
  readonly occurredAt?: Date
  /** Further headers, text to text. Names that the envelope itself uses are refused. */
  readonly headers?: Readonly<Record<string, string>>
}

/** W3C trace context, as the strings that travel. */
export interface TraceContext {
  readonly traceparent: string
  readonly tracestate?: string
}

/** An event as it is stored and sent. The payload stays text, so that no number changes on the way. */
export interface Envelope {
  /** UUIDv7, made at the append. The identity that consumers deduplicate by. */
  readonly id: string
  readonly type: string
  readonly aggregate: AggregateRef
  readonly version: number | null
  /** JSON text, byte for byte as on the topic; `null` is a tombstone. */
  readonly payload: string | null
  readonly occurredAt: Date
  readonly headers: Readonly<Record<string, string>>
  readonly trace: TraceContext | null
}

/** An envelope waiting in the outbox, with what the relay needs to place it. */
export interface OutboxEvent extends Envelope {
  /** Append order, ascending; the order of publication within an aggregate. */
  readonly seq: bigint
  readonly lane: number
  /** Java's murmur2 of the aggregate id, signed. Lane and partition both derive from it. */
  readonly keyHash: number
  /** Database time at which the row was created. */
  readonly createdAt: Date
  /** A topic of its own, for the rare event that does not follow the topic rule; normally `null`. */
  readonly topic: string | null
}
