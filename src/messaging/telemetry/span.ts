/** What all of our spans are made with: the tracer, the attributes of a message, and how a span fails and ends. */
import {
  type Attributes,
  type Context,
  context,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import {
  ATTR_BODY_SIZE,
  ATTR_DESTINATION,
  ATTR_ERROR_TYPE,
  ATTR_EVENT_TYPE,
  ATTR_MESSAGE_ID,
  ATTR_OPERATION_NAME,
  ATTR_OPERATION_TYPE,
  ATTR_OUTBOX,
  ATTR_SYSTEM,
  errorType,
  KAFKA,
  outboxName,
} from './attributes.ts'

/** The library's tracer. A proxy: it may be had before an SDK has registered. */
export function tracer(): Tracer {
  return trace.getTracer('graphql-outbox')
}

/** What a span says of the message that it is about. */
export function messageAttributes(
  operation: string,
  operationType: string,
  destination: string,
  message: { readonly id: string | null; readonly type: string; readonly bodyBytes: number },
): Attributes {
  return {
    [ATTR_SYSTEM]: KAFKA,
    [ATTR_OPERATION_NAME]: operation,
    [ATTR_OPERATION_TYPE]: operationType,
    [ATTR_DESTINATION]: destination,
    ...(message.id === null ? {} : { [ATTR_MESSAGE_ID]: message.id }),
    [ATTR_BODY_SIZE]: message.bodyBytes,
    [ATTR_OUTBOX]: outboxName(),
    [ATTR_EVENT_TYPE]: message.type,
  }
}

/** Runs `work` in `span` and ends that, as failed when `work` rejects. */
export async function within<T>(span: Span, parent: Context, work: () => Promise<T>): Promise<T> {
  try {
    return await context.with(trace.setSpan(parent, span), work)
  } catch (error) {
    fail(span, error)
    throw error
  } finally {
    span.end()
  }
}

/** Ends `span`, as failed if `error` is given. */
export function endSpan(span: Span, error: unknown): void {
  if (error !== undefined) fail(span, error)
  span.end()
}

/** Makes `span` a failed one. The error's type alone: its message may hold bind values. */
export function fail(span: Span, error: unknown): void {
  span.setStatus({ code: SpanStatusCode.ERROR })
  if (error !== undefined) span.setAttribute(ATTR_ERROR_TYPE, errorType(error))
}

/** Seconds, never negative: the database's clock may run ahead of ours. */
export function secondsSince(time: Date): number {
  return Math.max(0, Date.now() - time.getTime()) / 1_000
}
