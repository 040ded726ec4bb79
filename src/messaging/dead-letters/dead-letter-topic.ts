/**
 * The dead letter's own record: an outbox row for the topic `<topic>.<group>.dlq`,
 * written in the parking transaction and published by the relay like any other.
 *
 * It is a copy for readers outside. It has an id of its own, so no consumer
 * takes it for the original; what a redrive processes is the stored dead letter.
 */
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { rawJson, type TraceContext } from '../envelope.ts'
import { laneOf, murmur2 } from '../outbox/lane.ts'
import { payloadText } from '../outbox/payload.ts'
import { MAX_KEY_BYTES, MAX_NAME_LENGTH } from '../outbox/seal.ts'
import { startCreate } from '../telemetry/tracing.ts'
import type { SetAsideRecord } from './queries.ts'

/** Where a consumer's dead letters of `topic` go. */
export function deadLetterTopic(topic: string, group: string): string {
  return `${topic}.${group}.dlq`
}

/** What Postgres says of a value that it cannot hold, a number beyond its range or too deep a nesting: classes 22 and 54. */
const CANNOT_HOLD = /^(22|54)/

/** Appends the record of a dead letter to the outbox; `trx` is the one that sets the event aside. */
export async function appendDeadLetter(trx: Knex.Transaction, letter: SetAsideRecord, reason: string): Promise<void> {
  const topic = deadLetterTopic(letter.topic, letter.holder)
  const { value } = letter.record
  const { payload, encoding } = storablePayload(value)
  const row = {
    id: uuidv7(),
    type: letter.eventType ?? 'Unreadable',
    aggregate: { type: indexableType(letter.aggregateType), id: indexableId(letter) },
  }
  const span = startCreate({ ...row, bodyBytes: payload === null ? 0 : Buffer.byteLength(payload) }, topic)
  const whole = { ...row, topic, occurredAt: letter.record.timestamp, trace: span.trace }
  try {
    // In a savepoint: only Postgres knows for certain which JSON it can hold.
    await trx
      .transaction((inner) => insertRow(inner, { ...whole, payload, headers: headersOf(letter, reason, encoding) }))
      .catch(async (error: unknown) => {
        if (value === null || !cannotHold(error)) throw error
        await insertRow(trx, { ...whole, payload: inBase64(value), headers: headersOf(letter, reason, 'base64') })
      })
    span.end()
  } catch (error) {
    span.end(error)
    throw error
  }
}

/** As much of an aggregate type as an append takes: no index takes one of any length, and others' records may have it. */
function indexableType(aggregateType: string): string {
  return aggregateType.slice(0, MAX_NAME_LENGTH)
}

/**
 * The dead letter's key. A foreign record may have none, or one that no append
 * takes and that the relay could not hold; its place is then the next best.
 */
function indexableId(letter: SetAsideRecord): string {
  const { aggregateId } = letter
  return aggregateId === '' || Buffer.byteLength(aggregateId) > MAX_KEY_BYTES ? placeOf(letter) : aggregateId
}

/**
 * Whether dead letters for `topics` have waited for more than `afterMs` in an
 * outbox that no relay publishes at present. A mere look: a relay that starts
 * meanwhile makes the next one say no. Served by outbox_pending, and read only
 * where no relay is alive.
 */
export async function deadLettersWaitUnrelayed(db: Knex, topics: readonly string[], afterMs: number): Promise<boolean> {
  const { rows } = await db.raw<{ rows: { waiting: boolean }[] }>(
    `select case when exists (select 1 from relay_workers where expires_at > clock_timestamp()) then false
            else exists (
              select 1
                from outbox
               where published_at is null
                 and not held
                 and topic = any(:topics::text[])
                 and created_at < clock_timestamp() - :afterMs * interval '1 millisecond')
             end as waiting`,
    { topics, afterMs },
  )
  return rows[0]?.waiting ?? false
}

interface DeadLetterRow {
  readonly id: string
  readonly type: string
  readonly aggregate: { readonly type: string; readonly id: string }
  readonly topic: string
  readonly payload: string | null
  readonly headers: Readonly<Record<string, string>>
  readonly occurredAt: Date
  readonly trace: TraceContext | null
}

/**
 * Without the size check of an append: what came from a topic is set aside
 * whatever its size, or its key would never park. Dead letters of one key
 * follow each other, since each is written under the lock of the key's row in
 * held_keys.
 */
async function insertRow(trx: Knex.Transaction, row: DeadLetterRow): Promise<void> {
  const keyHash = murmur2(row.aggregate.id)
  await trx.raw(
    `insert into outbox (id, lane, key_hash, aggregate_type, aggregate_id, event_type,
            payload, headers, traceparent, tracestate, occurred_at, topic)
     values (:id, :lane, :keyHash, :aggregateType, :aggregateId, :type,
            :payload::jsonb, :headers::jsonb, :traceparent, :tracestate, :occurredAt, :topic)`,
    {
      id: row.id,
      lane: laneOf(keyHash),
      keyHash,
      aggregateType: row.aggregate.type,
      aggregateId: row.aggregate.id,
      type: row.type,
      payload: row.payload,
      headers: JSON.stringify(row.headers),
      traceparent: row.trace?.traceparent ?? null,
      tracestate: row.trace?.tracestate ?? null,
      occurredAt: row.occurredAt.toISOString(),
      topic: row.topic,
    },
  )
}

/** The payload as jsonb can hold it; otherwise its bytes in base64, as a JSON string. */
function storablePayload(value: Buffer | null): { payload: string | null; encoding: 'json' | 'base64' } {
  if (value === null) return { payload: null, encoding: 'json' }
  try {
    return { payload: payloadText(rawJson(value.toString('utf8'))), encoding: 'json' }
  } catch {
    return { payload: inBase64(value), encoding: 'base64' }
  }
}

function inBase64(value: Buffer): string {
  return JSON.stringify(value.toString('base64'))
}

/** Whether what was to be stored is the reason: no later attempt will store it. */
function cannotHold(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && CANNOT_HOLD.test(error.code)
}

function headersOf(letter: SetAsideRecord, reason: string, encoding: string): Record<string, string> {
  return {
    ...(letter.eventId === null ? {} : { original_event_id: letter.eventId }),
    original_topic: letter.topic,
    original_partition: String(letter.where.partition),
    original_offset: String(letter.record.offset),
    dead_letter_reason: reason,
    dead_letter_group: letter.holder,
    ...(encoding === 'json' ? {} : { payload_encoding: encoding }),
  }
}

function placeOf({ topic, where, record }: SetAsideRecord): string {
  return `${topic}/${where.partition}/${record.offset}`
}
