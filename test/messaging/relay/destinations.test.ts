import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { PublishError } from '../../../src/messaging/errors.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import type { TopicRule } from '../../../src/messaging/outbox/topic-rule.ts'
import { Destinations } from '../../../src/messaging/relay/destinations.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { TOPIC } from './setting.ts'

function createDestinations({ topicFor = () => TOPIC }: { topicFor?: TopicRule } = {}) {
  const time = { now: 0 }
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 8 } })
  const destinations = new Destinations({
    publisher: broker.createPublisher(),
    registry: {
      recorded: async () => null,
      record: async (_, partitionCount) => ({ partitionCount, earlierCounts: [], adoption: null }),
    },
    topicFor,
    createTopics: { partitionCount: 8, replicationFactor: null },
    clock: { now: () => time.now, pause: async () => {}, random: () => 0 },
    logger: silentLogger,
    onChange: () => {},
  })
  return { time, broker, destinations }
}

function eventOf(type: string): OutboxEvent {
  return {
    id: randomUUID(),
    type: 'Happened',
    aggregate: { type, id: 'a' },
    version: null,
    payload: '{}',
    occurredAt: new Date(),
    headers: {},
    trace: null,
    seq: 1n,
    lane: 0,
    keyHash: 0,
    createdAt: new Date(),
    topic: null,
  }
}

test('a pause after which nothing more came for the destination is told of no longer', () => {
  const { time, destinations } = createDestinations()
  const where = { topic: TOPIC, partition: 3 }
  destinations.failed(new PublishError(where, { kind: 'outage', outcome: 'unknown', reason: 'REQUEST_TIMED_OUT' }))

  expect(destinations.paused()).toMatchObject([where])
  time.now = 5_000
  expect(destinations.paused()).toMatchObject([where])
  time.now = 11_000
  expect(destinations.paused()).toEqual([])
})

test('a destination that goes on failing is told of all the time, and rests for longer', () => {
  const { time, destinations } = createDestinations()
  const where = { topic: TOPIC, partition: 3 }
  const failure = new PublishError(where, { kind: 'outage', outcome: 'unknown', reason: 'REQUEST_TIMED_OUT' })
  for (let attempt = 1; attempt <= 10; attempt += 1) {
    destinations.failed(failure)
    time.now += destinations.nextChangeInMs() ?? 0
    expect(destinations.paused()).toMatchObject([where])
  }

  expect(time.now).toBeGreaterThan(20_000)
})

test.each<[string, TopicRule]>([
  [
    'throws',
    (type) => {
      if (type === 'order') return TOPIC
      throw new Error('no such type')
    },
  ],
  ['names nothing', (type) => (type === 'order' ? TOPIC : (undefined as unknown as string))],
])('a topic rule that %s for a type stops that type alone, and makes no topic', async (_, topicFor) => {
  const { broker, destinations } = createDestinations({ topicFor })
  for (const type of ['order', 'ghost']) destinations.place(eventOf(type), 0)
  await destinations.settled()

  expect(destinations.place(eventOf('order'), 0)).toEqual({ topic: TOPIC, partition: 0 })
  expect(destinations.place(eventOf('ghost'), 0)).toBeNull()
  const topic = '(the topic rule names none for ghost)'
  expect(destinations.paused()).toMatchObject([{ topic, kind: 'destination' }])
  expect(destinations.exclusions(0, [])).toEqual([{ topic, aggregateTypes: ['ghost'], partition: null }])
  expect(await broker.describeTopic(topic)).toBeNull()
})
