/** Tells a client which events its mutation stated, and under which trace they travel: `extensions.outbox`. */
import type { ApolloServerPlugin } from '@apollo/server'
import { isSpanContextValid, trace } from '@opentelemetry/api'
import type { RequestContext } from './context.ts'

/** Adds `extensions.outbox = { eventIds, traceId }` to every answer to a mutation, also one in which some fields failed. */
export const outboxExtension: ApolloServerPlugin<RequestContext> = {
  async requestDidStart() {
    return {
      async willSendResponse({ operation, contextValue, response }) {
        if (operation?.operation !== 'mutation' || response.body.kind !== 'single') return
        const { singleResult } = response.body
        const outbox = { eventIds: contextValue.eventIds, traceId: currentTraceId() }
        response.body.singleResult = { ...singleResult, extensions: { ...singleResult.extensions, outbox } }
      },
    }
  },
}

/** 32 hex digits; `null` where nothing traces. */
function currentTraceId(): string | null {
  const span = trace.getActiveSpan()?.spanContext()
  return span && isSpanContextValid(span) ? span.traceId : null
}
