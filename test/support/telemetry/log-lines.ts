/** The service's own log over parts of the library, and the trace of a request that does not record: enough to see which lines find it. */
import { randomBytes } from 'node:crypto'
import { context, ROOT_CONTEXT, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import type { Logger } from '../../../src/messaging/index.ts'
import { createLogger } from '../../../src/service/logger.ts'

/** One line, as it would stand on standard output. */
export type LogLine = Readonly<Record<string, unknown>>

/** A logger of thread `thread` and what it has written. Makes contexts travel. */
export function keepLog(thread: string): { readonly logger: Logger; readonly lines: readonly LogLine[] } {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  const lines: LogLine[] = []
  const write = (text: string) => void lines.push(JSON.parse(text))
  return { logger: createLogger({ service: 'test', thread }, 'debug', { write }), lines }
}

/** A trace as it travels, and in its parts. */
export function createTrace() {
  const [traceId, spanId] = [randomBytes(16).toString('hex'), randomBytes(8).toString('hex')]
  const remote = trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: 1 })
  return {
    traceparent: `00-${traceId}-${spanId}-01`,
    /** What each line in it says. */
    fields: { trace_id: traceId, span_id: spanId, trace_flags: '01' },
    /** Runs `work` in it, as a request does. */
    run: <T>(work: () => T) => context.with(remote, work),
  }
}
