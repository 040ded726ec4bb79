/** What the parts of one consumer share, and how they speak of a delivery. */
import type { Knex } from 'knex'
import type { HeldKeyRef } from '../dead-letters/held-keys.ts'
import type { SetAsideRecord } from '../dead-letters/queries.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { eventFields } from '../telemetry/event-log.ts'
import type { TracedDelivery } from '../telemetry/tracing.ts'
import type { Board } from './board.ts'
import type { DecodeOptions, EventDelivery } from './decode.ts'
import type { HandlerSet } from './handlers.ts'
import type { ConsumerTuning } from './options.ts'
import type { OrderAudit } from './order-audit.ts'
import type { AttemptBounds } from './transaction.ts'

export interface ConsumerContext {
  /** The group id, under which the inbox, the held keys and the dead letters know this consumer. */
  readonly group: string
  readonly db: Knex
  readonly handlers: HandlerSet
  readonly tuning: Required<ConsumerTuning>
  readonly decoding: DecodeOptions
  readonly bounds: AttemptBounds
  readonly clock: Clock
  readonly logger: Logger
  readonly board: Board
  readonly audit: OrderAudit
  /** Aborts when nothing new is to be begun. */
  readonly draining: AbortSignal
}

/** The key that an event belongs to, as this consumer holds it. */
export function keyOf({ group }: Pick<ConsumerContext, 'group'>, { envelope, where }: EventDelivery): HeldKeyRef {
  return {
    holder: group,
    topic: where.topic,
    aggregateType: envelope.aggregate.type,
    aggregateId: envelope.aggregate.id,
  }
}

/**
 * Milliseconds for which a key rests that is due in `dueInMs` by the database's
 * clock. None where that is more than any back-off: then the clock was set back,
 * and the key would hold its partition until the old time has come again.
 */
export function restOf({ tuning }: Pick<ConsumerContext, 'tuning'>, dueInMs: number): number {
  return dueInMs > tuning.retryMaxMs ? 0 : dueInMs
}

/** A key as text, to be compared; for keys of one topic. */
export function keyText({ aggregateType, aggregateId }: Pick<HeldKeyRef, 'aggregateType' | 'aggregateId'>): string {
  return JSON.stringify([aggregateType, aggregateId])
}

/** An event's record, to be set aside whole. */
export function letterOf(context: Pick<ConsumerContext, 'group'>, delivery: EventDelivery): SetAsideRecord {
  return {
    ...keyOf(context, delivery),
    eventId: delivery.envelope.id,
    eventType: delivery.envelope.type,
    where: delivery.where,
    record: delivery.record,
  }
}

/** An event as its spans describe it. */
export function tracedOf({ group }: Pick<ConsumerContext, 'group'>, delivery: EventDelivery): TracedDelivery {
  const { envelope, where, record, createdAt } = delivery
  return {
    id: envelope.id,
    type: envelope.type,
    key: envelope.aggregate.id,
    topic: where.topic,
    partition: where.partition,
    offset: record.offset,
    bodyBytes: record.value?.byteLength ?? 0,
    group,
    trace: envelope.trace,
    createdAt,
    publishedAt: record.timestamp,
  }
}

/** An event in a log line: which one and where, never what is in it. */
export function fieldsOf(
  { group }: Pick<ConsumerContext, 'group'>,
  { envelope, where, record }: EventDelivery,
): object {
  return {
    consumer: group,
    ...eventFields(envelope, where),
    offset: String(record.offset),
  }
}
