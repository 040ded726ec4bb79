/** What a subscription counts of its membership, through the real SDK. */
import { expect, test } from '@jest/globals'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { ActiveSubscription } from '../../../src/messaging/transport.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'

const points = readMetrics()

/** What a group has counted. */
async function counted(name: 'rebalances' | 'crashes', group: string): Promise<number> {
  const found = await points(`outbox.consumer.${name}`)
  return Number(found.find(({ attributes }) => attributes['messaging.consumer.group.name'] === group)?.value ?? 0)
}

function join(topic: string, brokers: readonly string[]): ActiveSubscription {
  return createKafkaSubscriber({ brokers, clientId: 'membership', maxWaitMs: 100 }).subscribe({
    groupId: topic,
    topics: [topic],
    startOffset: async () => 'earliest',
    deliver: async ({ endOffset }) => ({ nextOffset: endOffset, pauseMs: 0 }),
  })
}

test('a member counts that it got its partitions when it joins, and again when another one does', async () => {
  const topic = uniqueTopic('membership')
  const publisher = createKafkaPublisher({ brokers: testBrokers(), clientId: 'membership' })
  await publisher.createTopic(topic, { partitionCount: 2, replicationFactor: 1 })
  await publisher.close()

  await using first = join(topic, testBrokers())
  await eventually('both partitions', () => first.status().partitions.length === 2)
  const alone = await counted('rebalances', topic)
  await using second = join(topic, testBrokers())
  await eventually('one each', () => [first, second].every((member) => member.status().partitions.length === 1))

  expect(alone).toBe(1)
  // Of the first one again, and of the second; a group that is interrupted while it deals out counts once more.
  expect(await counted('rebalances', topic)).toBeGreaterThanOrEqual(3)
})

test('a subscription that cannot join counts each time that it gives up', async () => {
  await using _subscription = join('nowhere', ['127.0.0.1:1'])

  await eventually('a second time', async () => (await counted('crashes', 'nowhere')) >= 2)
})
