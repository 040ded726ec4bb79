/**
 * What a line of the log says of the event that it is about: the same fields
 * under the same names in the relay and in a consumer, and the trace of the
 * request that caused the event, which is not what runs when a loop writes it.
 */
import { context, ROOT_CONTEXT, trace } from '@opentelemetry/api'
import type { Envelope, TraceContext } from '../envelope.ts'
import { outboxName } from './attributes.ts'
import { toSpanContext } from './trace-context.ts'

/** Where an event is or goes; `partition` is `null` where it is on none. */
export interface LoggedPlace {
  readonly topic: string
  readonly partition: number | null
}

/** Which event and where, never what is in it. */
export function eventFields(
  { id, type, aggregate }: Pick<Envelope, 'id' | 'type' | 'aggregate'>,
  { topic, partition }: LoggedPlace,
): object {
  return {
    outbox: outboxName(),
    event_id: id,
    event_type: type,
    aggregate_type: aggregate.type,
    aggregate_id: aggregate.id,
    topic,
    partition,
  }
}

/** A key, where no event of it is meant. */
export function keyFields(key: {
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
}): object {
  return {
    outbox: outboxName(),
    topic: key.topic,
    aggregate_type: key.aggregateType,
    aggregate_id: key.aggregateId,
  }
}

/** Runs `write` in the context that travels with an event, so that a logger finds its trace. Without usable context it runs where it is. */
export function inTraceOf(stored: TraceContext | null, write: () => void): void {
  const remote = stored === null ? null : toSpanContext(stored)
  if (remote === null) write()
  else context.with(trace.setSpanContext(ROOT_CONTEXT, remote), write)
}
