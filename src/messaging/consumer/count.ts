/** What the consumer counts of its deliveries, after their transaction has committed: a rollback counts nothing. */
import {
  ATTR_DESTINATION,
  ATTR_ERROR_TYPE,
  ATTR_GROUP,
  ATTR_KIND,
  ATTR_OPERATION_NAME,
  ATTR_OUTBOX,
  ATTR_RESULT,
  ATTR_SYSTEM,
  KAFKA,
  outboxName,
} from '../telemetry/attributes.ts'
import { rememberErrorTypes } from '../telemetry/error-types.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import type { DeliveryResult } from '../telemetry/tracing.ts'
import type { EventDelivery } from './decode.ts'

const typeOf = rememberErrorTypes()

/** A counter that appears with its first fault is no increase to Prometheus: that fault would go unseen. */
export function startAtZero(group: string, topics: readonly string[]): void {
  const { rebalances, crashes, orderViolations } = getInstruments()
  for (const counter of [rebalances, crashes]) counter.add(0, { [ATTR_GROUP]: group })
  for (const topic of topics) {
    for (const kind of ['gap', 'reversal']) {
      orderViolations.add(0, { [ATTR_GROUP]: group, [ATTR_DESTINATION]: topic, [ATTR_KIND]: kind })
    }
  }
}

/** Counts deliveries to `group` that came to the same result. */
export function countDeliveries(group: string, topic: string, result: DeliveryResult, count = 1): void {
  if (count === 0) return
  getInstruments().processed.add(count, { [ATTR_GROUP]: group, [ATTR_DESTINATION]: topic, [ATTR_RESULT]: result })
}

/** Records how long an event was on its way until its effect stood. */
export function recordDelay(group: string, { where, createdAt }: EventDelivery): void {
  // Never negative: the database's clock may run ahead of ours.
  const seconds = Math.max(0, Date.now() - createdAt.getTime()) / 1_000
  getInstruments().deliveryDelay.record(seconds, { [ATTR_GROUP]: group, [ATTR_DESTINATION]: where.topic })
}

/** Counts an event given up. */
export function countDeadLetter(topic: string, reason: string): void {
  getInstruments().deadLettered.add(1, {
    [ATTR_OUTBOX]: outboxName(),
    [ATTR_DESTINATION]: topic,
    [ATTR_ERROR_TYPE]: typeOf(reason),
  })
}

/** Records how long one transaction of deliveries took; `reason` when it failed. */
export function recordDuration(group: string, topic: string, ms: number, reason: string | null): void {
  getInstruments().processDuration.record(ms / 1_000, {
    [ATTR_SYSTEM]: KAFKA,
    [ATTR_OPERATION_NAME]: 'process',
    [ATTR_DESTINATION]: topic,
    [ATTR_GROUP]: group,
    ...(reason === null ? {} : { [ATTR_ERROR_TYPE]: typeOf(reason) }),
  })
}
