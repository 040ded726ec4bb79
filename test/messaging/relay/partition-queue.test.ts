import { randomUUID } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import type { HandEvent } from '../../../src/messaging/relay/hand.ts'
import { PartitionQueue, type PartitionQueueOptions } from '../../../src/messaging/relay/partition-queue.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { TOPIC } from './setting.ts'

const where = { topic: TOPIC, partition: 0 }
let lastSeq = 0n
const first = { attempt: 1, isReplay: false }

function taken(type: string, changes: Partial<OutboxEvent> = {}): HandEvent {
  lastSeq += 1n
  const event: OutboxEvent = {
    id: randomUUID(),
    type,
    aggregate: { type: 'order', id: 'order-1' },
    version: null,
    payload: '{}',
    occurredAt: new Date(),
    headers: {},
    trace: null,
    seq: lastSeq,
    lane: 0,
    keyHash: 0,
    createdAt: new Date(),
    topic: null,
    ...changes,
  }
  return { event, token: 1n, bytes: 100 }
}

function createQueue(changes: Partial<PartitionQueueOptions> = {}) {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const refused: string[] = []
  const failed: string[] = []
  const queue = new PartitionQueue(where, {
    publisher: broker.createPublisher(),
    clock: systemClock,
    batchSize: 1,
    maxBatchBytes: 900_000,
    cancelled: new AbortController().signal,
    certain: async () => {},
    wanted: () => true,
    onPublished: () => {},
    onUnknown: () => {},
    onRefused: ({ event }, { reason }) => refused.push(`${event.type}: ${reason}`),
    onFailed: (events, { reason }) => failed.push(`${events.map(({ event }) => event.type)}: ${reason}`),
    ...changes,
  })
  const types = () => broker.records(TOPIC).map(({ headers }) => headers.event_type)
  return { broker, queue, refused, failed, types }
}

test('what goes apart has its turn after the batch in flight, however many wait', async () => {
  const { queue, types } = createQueue()
  for (const type of ['First', 'Second', 'Third']) queue.push(taken(type))
  queue.start()
  const apart = queue.sendApart([taken('Apart').event], { ...first, wanted: () => true })

  expect(await apart).toBeNull()
  await queue.idle()
  expect(types()).toEqual(['First', 'Apart', 'Second', 'Third'])
})

test('what goes apart is not sent once it is not wanted at its turn', async () => {
  const { queue, types } = createQueue()
  queue.push(taken('First'))
  queue.start()
  const apart = queue.sendApart([taken('Apart').event], { ...first, wanted: () => false })

  expect(await apart).toBe('unwanted')
  await queue.idle()
  expect(types()).toEqual(['First'])
})

test('an event that cannot be made a record is refused alone, like one that the broker refuses', async () => {
  const { queue, types, refused } = createQueue({ batchSize: 10 })
  queue.push(taken('Good'))
  queue.push(taken('Bad', { occurredAt: new Date(Number.NaN) }))
  queue.push(taken('Better'))
  queue.start()

  await queue.idle()
  expect(types()).toEqual(['Good', 'Better'])
  expect(refused).toEqual(['Bad: CANNOT_BE_ENCODED'])
})

test('a publisher that throws instead of rejecting costs a batch its turn, never the worker', async () => {
  const publisher = new InMemoryBroker().createPublisher()
  const { queue, failed } = createQueue({
    publisher: {
      ...publisher,
      publish: () => {
        throw new TypeError('a fault in the driver')
      },
    },
  })
  queue.push(taken('First'))
  queue.push(taken('Second'))
  queue.start()

  await queue.idle()
  expect(failed).toEqual(['First,Second: TypeError'])
})

test('nothing is sent before the leases are certain, and then only what is still wanted', async () => {
  const certain = Promise.withResolvers<void>()
  const lost = new Set<string>()
  const { queue, types } = createQueue({
    certain: () => certain.promise,
    wanted: ({ event }) => !lost.has(event.type),
  })
  for (const type of ['First', 'Second']) queue.push(taken(type))
  queue.start()
  const apart = [true, false].map((isWanted) =>
    queue.sendApart([taken('Apart').event], { ...first, wanted: () => isWanted }),
  )
  await turn()
  expect(types()).toEqual([])
  lost.add('First')
  certain.resolve()

  expect(await Promise.all(apart)).toEqual([null, 'unwanted'])
  await queue.idle()
  expect(types()).toEqual(['Apart', 'Second'])
})

test('nothing is sent once the worker is cancelled, however certain the leases are then', async () => {
  const certain = Promise.withResolvers<void>()
  const cancel = new AbortController()
  const { queue, types, failed } = createQueue({ certain: () => certain.promise, cancelled: cancel.signal })
  queue.push(taken('First'))
  queue.start()
  const apart = queue.sendApart([taken('Apart').event], { ...first, wanted: () => true })
  cancel.abort()
  certain.resolve()

  expect(await apart).toBe('unwanted')
  await queue.idle()
  expect([types(), failed]).toEqual([[], []])
})

test('tells of every event whose send has ended in nobody knows what', async () => {
  const unknown: string[] = []
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const { queue } = createQueue({
    batchSize: 2,
    publisher: broker.createPublisher({ deliveryTimeoutMs: 0 }),
    onUnknown: (events) => unknown.push(...events.map(({ type }) => type)),
  })
  broker.faults.loseAnswers(1)
  for (const type of ['First', 'Second', 'Third']) queue.push(taken(type))
  queue.start()
  await queue.idle()
  broker.faults.loseRequests(1)
  await queue.sendApart([taken('Apart').event], { ...first, wanted: () => true })

  expect(unknown).toEqual(['First', 'Second', 'Apart'])
})
