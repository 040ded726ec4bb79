/** Tells a client which events its mutation stated, and under which trace they travel: `extensions.outbox`. */
import type { ApolloServerPlugin } from '@apollo/server'
import { isSpanContextValid, trace } from '@opentelemetry/api'
import type { RequestContext } from './context.ts'

/**
 * Adds `extensions.outbox = { eventIds, traceId }` to every answer of a mutation
 * that ran, also one in which some fields failed. A mutation that was refused
 * before, as by GET, has no outbox to speak of.
 */
export const outboxExtension: ApolloServerPlugin<RequestContext> = {
  async requestDidStart() {
    let ran = false
    return {
      async executionDidStart() {
        ran = true
      },
      async willSendResponse({ operation, contextValue, response }) {
        if (!ran || operation?.operation !== 'mutation' || response.body.kind !== 'single') return
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
