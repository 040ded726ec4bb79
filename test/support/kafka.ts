/** The Kafka node that global-setup started for this run of the tests. */
import { randomBytes } from 'node:crypto'
import type { Admin, ITopicConfig } from 'kafkajs'
import { eventually } from '../../src/messaging/testing/index.ts'

/** `host:port` of the one-node cluster. */
export function testBrokers(): readonly string[] {
  const brokers = process.env.TEST_KAFKA_BROKERS
  if (!brokers) throw new Error('TEST_KAFKA_BROKERS is not set: run tests with npm run jest')
  return brokers.split(',')
}

/** A topic name that no other test has, also in another run. The topic is not created. */
export function uniqueTopic(name: string): string {
  return `${name}-${randomBytes(5).toString('hex')}`
}

/**
 * Makes topics; resolves once all of their partitions have leaders. The client's
 * own way of waiting gives up where the broker that it asks has not heard of them.
 */
export async function createTopics(admin: Admin, ...topics: ITopicConfig[]): Promise<void> {
  await admin.createTopics({ topics, waitForLeaders: false, timeout: 60_000 })
  const names = topics.map(({ topic }) => topic)
  await eventually(`leaders of ${names}`, async () => {
    const { topics: found } = await admin.fetchTopicMetadata({ topics: names }).catch(() => ({ topics: [] }))
    return (
      found.length === names.length && found.every(({ partitions }) => partitions.every(({ leader }) => leader >= 0))
    )
  })
}
