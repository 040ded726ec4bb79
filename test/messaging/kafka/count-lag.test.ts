import { expect, test } from '@jest/globals'
import { Kafka, logLevel } from 'kafkajs'
import { countLag, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { BatchOutcome } from '../../../src/messaging/transport.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { batchOf, never, openPublisher } from './publishing.ts'

const brokers = testBrokers()

test('counts what lies before each group, and refuses one that the brokers do not know: it would never catch up', async () => {
  await using publisher = openPublisher({ brokers })
  const [topic, group, other] = ['lag', 'group', 'other'].map(uniqueTopic)
  if (!topic || !group || !other) throw new Error('There are three names')
  await publisher.createTopic(topic, { partitionCount: 2, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'first', 3), { signal: never })
  const held = Promise.withResolvers<BatchOutcome>()
  const lagOf = (...groups: readonly string[]) => countLag({ brokers, clientId: 'lag-test', topic, groups })
  const subscription = createKafkaSubscriber({ brokers, clientId: 'lag-test' }).subscribe({
    groupId: group,
    topics: [topic],
    startOffset: async () => 'earliest',
    deliver: async ({ records }) => ({ nextOffset: (records.at(-1)?.offset ?? -1n) + 1n, pauseMs: 0 }),
  })
  try {
    await eventually('all is committed', async () => (await lagOf(group)) === 0n)
  } finally {
    await subscription.stop()
  }
  await publisher.publish(batchOf(topic, 1, 'second', 4), { signal: never })

  expect(await lagOf(group)).toBe(4n)
  await expect(lagOf(group, other)).rejects.toThrow(
    `Option groups must be groups that the brokers know; it is "${other}"`,
  )
  const idle = createKafkaSubscriber({ brokers, clientId: 'lag-test' }).subscribe({
    groupId: other,
    topics: [topic],
    startOffset: async () => 'earliest',
    deliver: async () => await held.promise,
  })
  try {
    // It has joined, and committed nothing: all of the topic is before it.
    await eventually('the other group exists', async () => (await lagOf(other).catch(() => 0n)) === 7n)
    expect(await lagOf(group, other)).toBe(11n)
  } finally {
    held.resolve({ nextOffset: 0n, pauseMs: 0 })
    await idle.stop()
  }
})

test('counts what lies behind an open transaction: it is to be read once that has ended', async () => {
  await using publisher = openPublisher({ brokers })
  const [topic, group] = ['lag', 'group'].map(uniqueTopic)
  if (!topic || !group) throw new Error('There are two names')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'first', 2), { signal: never })
  const kafka = new Kafka({ brokers: [...brokers], logLevel: logLevel.NOTHING })
  await using scope = new AsyncDisposableStack()
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  scope.defer(() => producer.disconnect())
  const transaction = await producer.transaction()
  scope.defer(() => transaction.abort())
  await transaction.send({ topic, messages: [{ value: 'open', partition: 0 }] })
  await publisher.publish(batchOf(topic, 0, 'behind', 4), { signal: never })
  const subscription = createKafkaSubscriber({ brokers, clientId: 'lag-test' }).subscribe({
    groupId: group,
    topics: [topic],
    startOffset: async () => 'earliest',
    deliver: async ({ records }) => ({ nextOffset: (records.at(-1)?.offset ?? -1n) + 1n, pauseMs: 0 }),
  })
  scope.defer(() => subscription.stop())
  const lag = () => countLag({ brokers, clientId: 'lag-test', topic, groups: [group] })

  await eventually('what can be read is committed', async () => (await lag().catch(() => 0n)) === 5n)
})

test('says that it cannot tell when the topic or the brokers are away, and refuses to ask for nobody', async () => {
  const lag = { clientId: 'lag-test', topic: uniqueTopic('none'), groups: ['group'] }

  await expect(countLag({ ...lag, brokers })).rejects.toThrow('Option topic must be one that the brokers have')
  await expect(countLag({ ...lag, brokers: ['127.0.0.1:1'] })).rejects.toMatchObject({ kind: 'outage' })
  await expect(countLag({ ...lag, brokers, groups: [] })).rejects.toThrow(
    'Option groups must be a list of at least one',
  )
})
