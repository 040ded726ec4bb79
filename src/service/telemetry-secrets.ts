/**
 * Takes out of spans what may hold a stored or given value: what errors say,
 * and what is asked for in an address. Postgres quotes values in its messages,
 * GraphQL quotes arguments, and a query sent with GET stands in the address.
 * What kind of error it was, and where, stays.
 */
import type { ReadableSpan, SpanProcessor } from '@opentelemetry/sdk-trace'
import { ATTR_EXCEPTION_MESSAGE, ATTR_EXCEPTION_STACKTRACE, ATTR_URL_QUERY } from '@opentelemetry/semantic-conventions'
import { stackFrames } from '../messaging/telemetry/stack-frames.ts'

/** The conventions' word for what was taken out of an address. */
const REDACTED = 'REDACTED'

/** Belongs before the processor that exports. */
export const withoutSecrets: SpanProcessor = {
  onStart: () => {},
  // The instrumentations give no say in it, and an ended span can be changed in what it holds alone.
  onEnd({ attributes, events, status }: ReadableSpan): void {
    if (attributes[ATTR_URL_QUERY] !== undefined) attributes[ATTR_URL_QUERY] = REDACTED
    delete status.message
    for (const { attributes: said = {} } of events) {
      const { [ATTR_EXCEPTION_MESSAGE]: message, [ATTR_EXCEPTION_STACKTRACE]: stack } = said
      delete said[ATTR_EXCEPTION_MESSAGE]
      if (stack !== undefined) said[ATTR_EXCEPTION_STACKTRACE] = stackFrames({ message, stack }).join('\n')
    }
  },
  forceFlush: async () => {},
  shutdown: async () => {},
}
