/**
 * The spans of an event's way: `create` at the append, `send` in the relay,
 * `process` and `dedupe` in a consumer, all in the trace of the request that
 * caused them.
 *
 * The stored context decides, never the ambient one: a batch carries events of
 * many requests. An event of an unsampled request costs a look at one bit, and
 * its context travels on as it is. Nothing here fails because of bad context.
 */
import {
  context,
  createContextKey,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  TraceFlags,
  trace,
} from '@opentelemetry/api'
import type { AggregateRef, OutboxEvent, TraceContext } from '../envelope.ts'
import {
  ATTR_ATTEMPT,
  ATTR_CLIENT_ID,
  ATTR_CONSUMER,
  ATTR_DEDUPE_RESULT,
  ATTR_DELAY,
  ATTR_DELIVERY_DELAY,
  ATTR_GROUP,
  ATTR_KEY,
  ATTR_OFFSET,
  ATTR_PARTITION,
  ATTR_RESULT,
} from './attributes.ts'
import { placeSpan } from './placement.ts'
import { endSpan, fail, messageAttributes, secondsSince, tracer, within } from './span.ts'
import { isUnsampled, toSpanContext, toTraceContext } from './trace-context.ts'
import { traceWait } from './wait-span.ts'

// The SDK's own key: API keys are symbols of the global registry, so the API
// package is enough to reach it.
const SUPPRESS_TRACING = createContextKey('OpenTelemetry SDK Context Key SUPPRESS_TRACING')
const SUPPRESSED = ROOT_CONTEXT.setValue(SUPPRESS_TRACING, true)

/** A span that somebody has to end. */
export interface OpenSpan {
  /** What is to travel with the event: this span's context, or what came in when there is no span. */
  readonly trace: TraceContext | null
  /** Ends the span, as failed if `error` is given. */
  end(error?: unknown): void
}

/** What a consumer's `process` span says of a delivery. */
export type DeliveryResult =
  | 'processed'
  | 'duplicate'
  | 'retry'
  | 'dead_lettered'
  | 'waiting'
  | 'skipped'
  | 'unknown_type'

/** One delivery, as its span describes it. */
export interface TracedDelivery {
  /** The event's id; `null` when the record has none. */
  readonly id: string | null
  readonly type: string
  readonly key: string
  readonly topic: string
  readonly partition: number
  readonly offset: bigint
  readonly bodyBytes: number
  /** The consumer group. */
  readonly group: string
  /** The record's own context: the relay's `send`. */
  readonly trace: TraceContext | null
  /** When the event's row was created, as near as is known; gives the delivery delay. */
  readonly createdAt?: Date
  /** The record's time. Decides whether the delivery still joins the trace. @defaultValue `createdAt` */
  readonly publishedAt?: Date
  /** Whether it is delivered at somebody's request, apart from its record: then it begins a trace of its own. @defaultValue false */
  readonly replay?: boolean
}

/** The active span's context; `null` when there is none or it is invalid, as without an SDK. */
export function currentTraceContext(): TraceContext | null {
  return toTraceContext(trace.getActiveSpan()?.spanContext())
}

/**
 * Starts `create <destination>` under the active span. Its context is what is
 * stored with the event, so that the relay and the consumers join this trace.
 */
export function startCreate(
  event: {
    readonly id: string
    readonly type: string
    readonly aggregate: AggregateRef
    readonly bodyBytes: number
  },
  destination: string,
): OpenSpan {
  const parent = trace.getActiveSpan()?.spanContext()
  if (parent && (parent.traceFlags & TraceFlags.SAMPLED) === 0) return passing(toTraceContext(parent))

  const span = tracer().startSpan(`create ${destination}`, {
    kind: SpanKind.PRODUCER,
    attributes: {
      ...messageAttributes('create', 'create', destination, event),
      [ATTR_KEY]: event.aggregate.id,
    },
  })
  return open(span, null)
}

/**
 * Starts `send <topic>`, once per attempt. A child of the event's own `create`
 * while that is young; later, or on a replay, the root of a new trace with a
 * link to it.
 */
export function startSend(
  event: OutboxEvent,
  where: {
    readonly topic: string
    readonly partition: number
    /** Counts from 1. */
    readonly attempt: number
    /** Whether an operator has asked for it. @defaultValue false */
    readonly isReplay?: boolean
    readonly clientId?: string
    /** The batch that carries it, to link to. @defaultValue none */
    readonly batch?: SpanContext | null
  },
): OpenSpan {
  const stored = event.trace
  if (stored !== null && isUnsampled(stored.traceparent)) return passing(stored)

  const origin = placeSpan(stored, {
    since: event.createdAt,
    replay: (where.isReplay ?? false) || event.headers.outbox_replay !== undefined,
  })
  if (where.attempt === 1 && origin.joins) traceWait(event, origin.context)
  const span = tracer().startSpan(
    `send ${where.topic}`,
    {
      kind: SpanKind.PRODUCER,
      links: where.batch ? [...origin.links, { context: where.batch }] : origin.links,
      attributes: {
        ...messageAttributes('send', 'send', where.topic, {
          id: event.id,
          type: event.type,
          bodyBytes: event.payload === null ? 0 : Buffer.byteLength(event.payload),
        }),
        ...origin.attributes,
        [ATTR_KEY]: event.aggregate.id,
        [ATTR_PARTITION]: String(where.partition),
        [ATTR_DELAY]: secondsSince(event.createdAt),
        [ATTR_ATTEMPT]: where.attempt,
        ...(where.clientId === undefined ? {} : { [ATTR_CLIENT_ID]: where.clientId }),
      },
    },
    origin.context,
  )
  return open(span, origin.malformed ? null : stored)
}

/**
 * Runs `work` in `process <topic>`, a child of the record's `send`. A
 * redelivery adds a sibling. Fails the span when `work` rejects, and also when
 * the result says that the event was not applied.
 */
export async function processSpan<T>(
  delivery: TracedDelivery,
  work: (span: { result(outcome: DeliveryResult, cause?: unknown): void }) => Promise<T>,
): Promise<T> {
  const { trace: carried } = delivery
  const remote = carried === null ? null : toSpanContext(carried)
  if (remote !== null && (remote.traceFlags & TraceFlags.SAMPLED) === 0) {
    // No span, yet the context: what the handler appends or calls belongs to the same unsampled trace.
    return await context.with(trace.setSpanContext(ROOT_CONTEXT, remote), () => work(ignoring))
  }

  const origin = placeSpan(carried, {
    since: delivery.publishedAt ?? delivery.createdAt,
    replay: delivery.replay ?? false,
  })
  const span = tracer().startSpan(
    `process ${delivery.topic}`,
    {
      kind: SpanKind.CONSUMER,
      links: origin.links,
      attributes: {
        ...messageAttributes('process', 'process', delivery.topic, delivery),
        ...origin.attributes,
        [ATTR_KEY]: delivery.key,
        [ATTR_PARTITION]: String(delivery.partition),
        [ATTR_OFFSET]: Number(delivery.offset),
        [ATTR_GROUP]: delivery.group,
      },
    },
    origin.context,
  )
  return await within(span, origin.context, async () => {
    const done = await work({
      result(outcome, cause) {
        span.setAttribute(ATTR_RESULT, outcome)
        if (outcome === 'retry' || outcome === 'dead_lettered') fail(span, cause)
      },
    })
    if (delivery.createdAt) span.setAttribute(ATTR_DELIVERY_DELAY, secondsSince(delivery.createdAt))
    return done
  })
}

/**
 * Runs `work` in `dedupe processed_events` under the active span: the inbox's
 * row, the handler and the commit. `poll` is the batch that the row was stored
 * with, to link to.
 */
export async function dedupeSpan<T>(
  consumer: string,
  work: (span: { result(verdict: 'new' | 'duplicate'): void }) => Promise<T>,
  poll: SpanContext | null = null,
): Promise<T> {
  const parent = trace.getActiveSpan()?.spanContext()
  if (parent && (parent.traceFlags & TraceFlags.SAMPLED) === 0) return await work(ignoring)

  const span = tracer().startSpan('dedupe processed_events', {
    links: poll === null ? [] : [{ context: poll }],
    attributes: { [ATTR_CONSUMER]: consumer },
  })
  return await within(span, context.active(), () =>
    work({
      result(verdict) {
        span.setAttribute(ATTR_DEDUPE_RESULT, verdict)
      },
    }),
  )
}

/**
 * Runs `work` without spans: polling and housekeeping. Awaits inside, since a
 * knex builder runs only when awaited, and one handed back would be traced
 * after all.
 */
export async function untraced<T>(work: () => Promise<T>): Promise<T> {
  return await context.with(SUPPRESSED, async () => await work())
}

const ignoring = { result: () => {} }

function passing(carried: TraceContext | null): OpenSpan {
  return { trace: carried, end: () => {} }
}

/** Without an SDK a span has no valid context of its own: then what came in travels on. */
function open(span: Span, carried: TraceContext | null): OpenSpan {
  return {
    trace: toTraceContext(span.spanContext()) ?? carried,
    end: (error) => endSpan(span, error),
  }
}
