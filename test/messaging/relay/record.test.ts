import { expect, test } from '@jest/globals'
import { v7 as uuidv7 } from 'uuid'
import { decode, defaultAggregateTypeOf } from '../../../src/messaging/consumer/decode.ts'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { toRecord } from '../../../src/messaging/relay/record.ts'

/** The type that a consumer reads, which takes `prefix` from the names of topics. */
function typeRead(type: string, topic: string, prefix: string): string | null {
  const { key, value, headers } = toRecord(eventOf(type), topic, null)
  const record = { offset: 0n, timestamp: new Date(), key: Buffer.from(key), value: Buffer.from(value ?? ''), headers }
  const options = { aggregateTypeOf: defaultAggregateTypeOf(prefix), deriveIds: false }
  const decoded = decode({ topic, partition: 0 }, record, options)
  return decoded.kind === 'event' ? decoded.delivery.envelope.aggregate.type : null
}

function eventOf(type: string): OutboxEvent {
  return {
    id: uuidv7(),
    seq: 1n,
    lane: 0,
    keyHash: 0,
    type: 'OrderPlaced',
    aggregate: { type, id: 'order-1' },
    version: null,
    payload: '{}',
    occurredAt: new Date(),
    createdAt: new Date(),
    headers: {},
    trace: null,
    topic: null,
  }
}

test.each([
  ['order.events', ''],
  ['preorder.events', ''],
  ['shop-order.events', ''],
  ['shop-order.events', 'shop-'],
  ['shop.order.events', ''],
  ['shop.order.events', 'shop.'],
  ['shop.order.events', 'shop'],
  ['order', ''],
  ['order.events.summary.dlq', ''],
])('a consumer reads the type order on topic %s, with prefix "%s"', (topic, prefix) => {
  expect(typeRead('order', topic, prefix)).toBe('order')
})

test('a record whose topic is named after its type alone does not carry it', () => {
  expect(toRecord(eventOf('order'), 'order.events', null).headers).not.toHaveProperty('aggregate_type')
})
