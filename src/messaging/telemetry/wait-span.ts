/**
 * `outbox wait`, under an event's `create`: from the creation of its row to its
 * first attempt. Shows in a trace where the time went; `outbox.delay` on `send`
 * has the same figure, so it is off unless somebody wants to see it.
 */
import type { Context } from '@opentelemetry/api'
import type { OutboxEvent } from '../envelope.ts'
import { InvalidOptionError } from '../errors.ts'
import { tracer } from './span.ts'

let wanted = false

/**
 * Shows in each recorded trace how long its event waited, one more span an
 * event. Call it once in each relay thread.
 * @defaultValue false
 * @throws InvalidOptionError for what is neither true nor false
 */
export function setWaitSpans(on: boolean): void {
  if (typeof on !== 'boolean') throw new InvalidOptionError('on', on, 'true or false')
  wanted = on
}

/** Leaves the span, if wanted, under `parent`: from the row's creation, on the database's clock, to now. */
export function traceWait({ createdAt }: Pick<OutboxEvent, 'createdAt'>, parent: Context): void {
  if (!wanted) return
  const now = Date.now()
  tracer()
    .startSpan('outbox wait', { startTime: Math.min(createdAt.getTime(), now) }, parent)
    .end(now)
}
