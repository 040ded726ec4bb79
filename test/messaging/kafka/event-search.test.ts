/** Looking for an event where not everything that lies in the partition counts, or can be seen. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Kafka, logLevel, type Transaction } from 'kafkajs'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { testBrokers, uniqueTopic } from '../../support/kafka.ts'
import { never, openPublisher } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

let witness: Witness
beforeAll(async () => {
  witness = await createWitness(testBrokers())
})
afterAll(() => witness?.close())

test('takes no record of an aborted transaction for the event', async () => {
  await using publisher = openPublisher({ brokers: testBrokers() })
  const topic = await newTopic(publisher)
  await inTransaction(topic, async (transaction) => {
    await transaction.send({ topic, messages: [messageOf('a')] })
    await transaction.abort()
  })

  expect(await find(publisher, topic, 'a')).toBeNull()
  await publisher.publish(batchWith(topic, 'a'), { signal: never })
  // Behind the record that was aborted and the mark that says so.
  expect(await find(publisher, topic, 'a')).toBe(2n)
})

test('waits for a transaction that is open before what it looks for, and finds it then', async () => {
  await using publisher = openPublisher({ brokers: testBrokers() })
  const topic = await newTopic(publisher)
  await inTransaction(topic, async (transaction) => {
    await transaction.send({ topic, messages: [messageOf('other')] })
    await publisher.publish(batchWith(topic, 'a'), { signal: never })
    const finding = find(publisher, topic, 'a')
    const missing = find(publisher, topic, 'never')
    // Ample for a search that waits for nobody.
    const first = await Promise.race([
      finding,
      missing,
      new Promise((resolve) => setTimeout(resolve, 1_500, 'waiting')),
    ])
    await transaction.commit()

    expect(first).toBe('waiting')
    expect(await finding).toBe(1n)
    expect(await missing).toBeNull()
  })
})

test('answers nothing while the partition has fewer copies than it must have', async () => {
  await using publisher = openPublisher({ brokers: testBrokers() })
  const topic = await newTopic(publisher)
  await publisher.publish(batchWith(topic, 'a'), { signal: never })
  await configure(topic, 'min.insync.replicas', '2')

  await expect(find(publisher, topic, 'a')).rejects.toMatchObject({ kind: 'outage', reason: 'NOT_ENOUGH_REPLICAS' })
  await configure(topic, 'min.insync.replicas', '1')
  expect(await find(publisher, topic, 'a')).toBe(0n)
})

test('goes on behind what retention has deleted', async () => {
  await using publisher = openPublisher({ brokers: testBrokers() })
  const topic = await newTopic(publisher)
  for (const id of ['a', 'b', 'c']) await publisher.publish(batchWith(topic, id), { signal: never })
  // The client knows a topic's leaders once it has asked for its offsets.
  await witness.admin.fetchTopicOffsets(topic)
  await witness.admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '2' }] })

  expect(await find(publisher, topic, 'a')).toBeNull()
  expect(await find(publisher, topic, 'c')).toBe(2n)
})

test('ends its searches when it is closed', async () => {
  await using publisher = openPublisher({ brokers: testBrokers() })
  const topic = await newTopic(publisher)
  await inTransaction(topic, async (transaction) => {
    await transaction.send({ topic, messages: [messageOf('other')] })
    const finding = expect(find(publisher, topic, 'a')).rejects.toMatchObject({ kind: 'outage', reason: 'ABORTED' })
    await publisher.close()

    await finding
    await transaction.abort()
  })
})

async function find(publisher: Publisher, topic: string, eventId: string): Promise<bigint | null> {
  return await publisher.findEvent(
    { topic, partition: 0, eventId, from: new Date(Date.now() - 60_000) },
    { signal: never },
  )
}

async function newTopic(publisher: Publisher): Promise<string> {
  const topic = uniqueTopic('search')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  return topic
}

function batchWith(topic: string, eventId: string) {
  return { topic, partition: 0, records: [{ key: 'k', value: '{}', headers: { event_id: eventId } }] }
}

function messageOf(eventId: string) {
  return { partition: 0, value: '{}', headers: { event_id: eventId } }
}

/** Runs `work` in a transaction of a producer of its own, which `work` ends. */
async function inTransaction(name: string, work: (transaction: Transaction) => Promise<void>): Promise<void> {
  const kafka = new Kafka({ brokers: [...testBrokers()], clientId: 'foreign', logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    await work(await producer.transaction())
  } finally {
    await producer.disconnect()
  }
}

async function configure(topic: string, name: string, value: string): Promise<void> {
  const resource = { type: 2, name: topic, configEntries: [{ name, value }] }
  await witness.admin.alterConfigs({ validateOnly: false, resources: [resource] })
}
