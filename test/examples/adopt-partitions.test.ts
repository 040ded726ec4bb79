/** The operator's example, run as its reader would run it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, test } from '@jest/globals'
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

  expect(await adopt(database.url, topic, 'nobody')).toMatchObject({ out: `${topic}: 2, now 3`, code: 0 })
  expect(await adopt(database.url, topic, 'nobody')).toMatchObject({
    out: `${topic} has 3 partitions as before`,
    code: 0,
  })
  expect(await adopt(database.url, 'none', 'nobody')).toMatchObject({
    errors: expect.stringContaining('The partitions of none were not adopted: the broker does not have it'),
    code: 1,
  })
  expect(await adopt(database.url, topic)).toMatchObject({ errors: expect.stringContaining('TOPIC GROUP'), code: 1 })
})
