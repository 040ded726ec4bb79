/** How an event looks as a record on its topic: see "Record" in ARCHITECTURE.md. */
import type { OutboxEvent, TraceContext } from '../envelope.ts'
import type { OutgoingRecord } from '../transport.ts'

/** Bytes a record takes beyond its payload, generously: key, headers and framing. */
const RECORD_OVERHEAD_BYTES = 400

/** The record for `event`, under the trace context of its `send` span. */
export function toRecord(event: OutboxEvent, topic: string, trace: TraceContext | null): OutgoingRecord {
  return { key: event.aggregate.id, value: event.payload, headers: headersOf(event, topic, trace) }
}

function headersOf(event: OutboxEvent, topic: string, trace: TraceContext | null): Record<string, string> {
  const headers: Record<string, string> = {
    ...event.headers,
    event_id: event.id,
    event_type: event.type,
    occurred_at: event.occurredAt.toISOString(),
  }
  if (event.version !== null) headers.aggregate_version = String(event.version)
  if (trace !== null) {
    headers.traceparent = trace.traceparent
    if (trace.tracestate !== undefined) headers.tracestate = trace.tracestate
  }
  // Left out only where the whole name tells it: a prefix, `shop-` or `pre`, ends where the reader thinks it does.
  if (topic !== `${event.aggregate.type}.events`) headers.aggregate_type = event.aggregate.type
  return headers
}

/** About how many bytes `event` takes in a record batch. Never too few for text in the Latin script; the driver checks the exact size. */
export function approximateBytes(event: OutboxEvent): number {
  const payload = event.payload === null ? 0 : Buffer.byteLength(event.payload)
  const headers = Buffer.byteLength(JSON.stringify(event.headers))
  return payload + headers + Buffer.byteLength(event.aggregate.id) + RECORD_OVERHEAD_BYTES
}
