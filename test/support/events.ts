/** Events for tests: what matters is given, what does not is made up. */
import { randomUUID } from 'node:crypto'
import type { DomainEvent } from '../../src/messaging/envelope.ts'

/** An event of one order. */
export function orderEvent<Type extends string>(
  type: Type,
  id: string = randomUUID(),
  event: Partial<DomainEvent> = {},
): DomainEvent<Type> {
  return { payload: { orderId: id }, ...event, type, aggregate: { type: 'order', id } }
}

/** An event with nothing to say but its type and key, as an outbox in memory takes it. */
export function plainEvent(type: string, id = 'order-1') {
  return {
    id: randomUUID(),
    type,
    aggregate: { type: 'order', id },
    version: null,
    payload: '{}',
    occurredAt: new Date(),
    headers: {},
    trace: null,
    topic: null,
  }
}
