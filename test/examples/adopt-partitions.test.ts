/** The operator's example, run as its reader would run it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, test } from '@jest/globals'
import { Kafka, logLevel } from 'kafkajs'
import { createKafkaPublisher } from '../../src/messaging/kafka/index.ts'
import { createTestDatabase } from '../support/database.ts'
import { testBrokers, uniqueTopic } from '../support/kafka.ts'

async function adopt(url: string, ...parameters: readonly string[]) {
  const example = spawn(process.execPath, ['examples/adopt-partitions.ts', ...parameters], {
    env: { ...process.env, DATABASE_URL: url, KAFKA_BROKERS: testBrokers().join() },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  using _example = { [Symbol.dispose]: () => void example.kill('SIGKILL') }
  const [out, errors, [code]] = await Promise.all([text(example.stdout), text(example.stderr), once(example, 'exit')])
  return { out: out.trim(), errors, code }
}

/** A group that has committed what there is: nothing yet, on each of three partitions. */
async function hasRead(topic: string, groupId: string): Promise<void> {
  const admin = new Kafka({ brokers: [...testBrokers()], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  const partitions = [0, 1, 2].map((partition) => ({ partition, offset: '0' }))
  await admin.setOffsets({ groupId, topic, partitions })
  await admin.disconnect()
}

test('the example adopts the partitions that a topic has on the broker, and says what it cannot do', async () => {
  await using database = await createTestDatabase()
  const topic = uniqueTopic('adopted')
  const publisher = createKafkaPublisher({ brokers: testBrokers(), clientId: 'adopt-test' })
  try {
    await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  } finally {
    await publisher.close()
  }
  await database.db('topics').insert({ topic, partition_count: 2 })

  expect(await adopt(database.url, topic, 'nobody')).toMatchObject({
    errors: expect.stringContaining('groups that the brokers know; it is "nobody"'),
    code: 1,
  })
  const group = uniqueTopic('reader')
  await hasRead(topic, group)
  expect(await adopt(database.url, topic, group)).toMatchObject({ out: `${topic}: 2, now 3`, code: 0 })
  expect(await adopt(database.url, topic, group)).toMatchObject({
    out: `${topic} has 3 partitions as before`,
    code: 0,
  })
  expect(await adopt(database.url, 'none', 'nobody')).toMatchObject({
    errors: expect.stringContaining('The partitions of none were not adopted: the broker does not have it'),
    code: 1,
  })
  expect(await adopt(database.url, topic)).toMatchObject({ errors: expect.stringContaining('TOPIC GROUP'), code: 1 })
})
