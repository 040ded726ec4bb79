/**
 * W3C trace context between its two forms: the strings that travel in a row or
 * a header, and the span context that the API works with.
 */
import { createTraceState, isSpanContextValid, type SpanContext, TraceFlags } from '@opentelemetry/api'
import type { TraceContext } from '../envelope.ts'

const TRACEPARENT = /^(?!ff)[\da-f]{2}-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-[\da-f]{2}(?:-.*)?$/

/** As strings; `null` for what is missing or invalid. */
export function toTraceContext(context: SpanContext | undefined): TraceContext | null {
  if (!context || !isSpanContextValid(context)) return null
  const traceparent = `00-${context.traceId}-${context.spanId}-${context.traceFlags.toString(16).padStart(2, '0')}`
  const tracestate = context.traceState?.serialize()
  return tracestate ? { traceparent, tracestate } : { traceparent }
}

/** As a remote span context; `null` when the strings are not W3C trace context. Never throws. */
export function toSpanContext({ traceparent, tracestate }: TraceContext): SpanContext | null {
  if (!isWellFormed(traceparent)) return null
  const context: SpanContext = {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    traceFlags: flagsOf(traceparent),
    isRemote: true,
  }
  return tracestate ? { ...context, traceState: createTraceState(tracestate) } : context
}

/** Whether `traceparent` is well formed and its sampled bit is off. Other bits may be set: flags `02` are unsampled, `03` are sampled. */
export function isUnsampled(traceparent: string): boolean {
  return (flagsOf(traceparent) & TraceFlags.SAMPLED) === 0 && isWellFormed(traceparent)
}

/** Version 00 has four fields and no more; a later one may have. */
function isWellFormed(traceparent: string): boolean {
  return TRACEPARENT.test(traceparent) && (traceparent.length === 55 || !traceparent.startsWith('00'))
}

function flagsOf(traceparent: string): number {
  return Number.parseInt(traceparent.slice(53, 55), 16)
}
