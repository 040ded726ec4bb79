import { expect, test } from '@jest/globals'
import { createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'

test('a subscriber whose broker cannot be reached says that, and nothing of publishing', async () => {
  const subscriber = createKafkaSubscriber({ brokers: ['127.0.0.1:1'], clientId: 'words' })
  await using subscription = subscriber.subscribe({
    groupId: 'words',
    topics: ['order.events'],
    startOffset: async () => 'earliest',
    deliver: async ({ endOffset }) => ({ nextOffset: endOffset, pauseMs: 0 }),
  })

  // A machine that is busy may find no time to hear of the refusal, and calls it a timeout at first.
  const words = 'Kafka cannot be reached to look for the topic order.events'
  await eventually('the reason', () => subscription.status().reason === `${words}: ECONNREFUSED`)
  expect(subscription.status().phase).toBe('failing')
})
