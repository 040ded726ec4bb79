/** Rules of the driver that another rule would hide: each seen by what goes over the wire. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { PartitionWriter } from '../../../src/messaging/kafka/partition-writer.ts'
import { createPublisher } from '../../../src/messaging/kafka/publisher.ts'
import { resolvePublisherOptions } from '../../../src/messaging/kafka/publisher-options.ts'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import type { TopicPartition } from '../../../src/messaging/transport.ts'
import { uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { KafkaProxy } from '../../support/proxy/kafka-proxy.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { partitionsIn, withBaseOffset, withErrorCode } from './produce-answers.ts'
import { batchOf, firsts, never, onProduce, openPublisher, valuesIn, valuesOf } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

const NOT_LEADER = 6
const TOPIC_AUTHORIZATION_FAILED = 29
const THROTTLE_MS = 1_000

const stack = new AsyncDisposableStack()
let cluster: ProxiedKafka
let proxy: KafkaProxy
let witness: Witness
beforeAll(async () => {
  cluster = stack.use(await startProxiedKafka(1, { 'transaction.partition.verification.enable': false }))
  const [first] = cluster.proxies
  if (!first) throw new Error('There is a proxy')
  proxy = first
  witness = stack.use(await createWitness(cluster.brokers))
})
afterAll(() => stack.disposeAsync())

test('K2 another batch goes over another producer once one of unknown outcome was given up', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs: 4_000 })
  const topic = uniqueTopic('rules')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'warm', 10), { signal: never })
  void onProduce(proxy, 'swallow answer')
  const given = publisher.publish(batchOf(topic, 0, 'unknown', 10), { signal: never })
  await expect(given).rejects.toMatchObject({ outcome: 'unknown' })
  const [requests, producers] = [proxy.count(api.produce), proxy.count(api.initProducerId)]

  await publisher.publish(batchOf(topic, 0, 'next', 10), { signal: never })

  // On the old one it would be answered as a copy of what was given up, and only the look at the offset would notice.
  expect(proxy.count(api.initProducerId)).toBe(producers + 1)
  expect(proxy.count(api.produce)).toBe(requests + 1)
})

test('K2 a batch that a leader may have stored before it lost the partition is of unknown outcome, and its numbers are not used again', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = uniqueTopic('rules')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'warm', 2), { signal: never })
  const answers = [NOT_LEADER, TOPIC_AUTHORIZATION_FAILED]
  const end = proxy.rule(({ apiKey }) => {
    const code = apiKey === api.produce ? answers.shift() : undefined
    return code === undefined ? 'pass' : { rewrite: (answer) => withErrorCode(answer, topic, code) }
  })

  const given = publisher.publish(batchOf(topic, 0, 'moved', 2), { signal: never })
  await expect(given).rejects.toMatchObject({ kind: 'destination', outcome: 'unknown' })
  end()
  await publisher.publish(batchOf(topic, 0, 'next', 2), { signal: never })

  expect(answers).toEqual([])
  const expected = ['warm', 'moved', 'next'].flatMap((name) => valuesOf(batchOf(topic, 0, name, 2)))
  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(expected)
})

test('K2 a first answer that names an offset from before the producer is no acknowledgement', async () => {
  const topic = uniqueTopic('rules')
  {
    await using earlier = openPublisher({ brokers: cluster.brokers })
    await earlier.createTopic(topic, { partitionCount: 1, replicationFactor: null })
    await earlier.publish(batchOf(topic, 0, 'earlier', 2), { signal: never })
  }
  await using publisher = openPublisher({ brokers: cluster.brokers })

  void onProduce(proxy, { rewrite: (answer) => withBaseOffset(answer, topic, 0n) })
  const { baseOffset } = await publisher.publish(batchOf(topic, 0, 'next', 2), { signal: never })

  // Stored by the first attempt, disbelieved, and stored once more by a new producer.
  expect(baseOffset).toBe(4n)
  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(['earlier-0', 'earlier-1', 'next-0', 'next-1'])
})

test('sends nothing once the time for it is over, although the process was frozen until then', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = uniqueTopic('rules')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  const { writer, oversleep, hasSlept } = sleepyWriter(topic)
  // The last that a producer asks before it sends: the process freezes before the answer comes.
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey === api.listOffsets) oversleep()
    return 'pass'
  })
  const requests = proxy.count(api.produce)

  await expect(writer.write([{ key: 'k', value: 'late', partition: 0 }], never)).rejects.toMatchObject({
    kind: 'outage',
    outcome: 'refused',
    reason: 'DELIVERY_TIMEOUT',
  })
  end()
  await writer.close()
  expect(hasSlept()).toBe(true)
  expect(proxy.count(api.produce)).toBe(requests)
})

test('sends nothing that has waited behind a throttle until its time was over', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = uniqueTopic('rules')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  const { writer, oversleep, hasSlept } = sleepyWriter(topic)
  // What follows the last question before the send waits in the client, and its time ends meanwhile.
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey !== api.listOffsets) return 'pass'
    setTimeout(oversleep, THROTTLE_MS / 2)
    return { rewrite: withThrottle }
  })
  const requests = proxy.count(api.produce)

  await expect(writer.write([{ key: 'k', value: 'late', partition: 0 }], never)).rejects.toMatchObject({
    outcome: 'refused',
    reason: 'DELIVERY_TIMEOUT',
  })
  end()
  await writer.close()
  expect(hasSlept()).toBe(true)
  expect(proxy.count(api.produce)).toBe(requests)
})

test('K12 goes on with a new producer before the numbering of its records wraps around', async () => {
  const options = resolvePublisherOptions({ brokers: cluster.brokers, clientId: 'rules' })
  // What is left of the 31 bits holds any batch: one is far below a record for each of its bytes.
  expect(options.maxProducerRecords + options.maxRequestBytes).toBeLessThan(2 ** 31)
  const publisher = createPublisher({ ...options, maxProducerRecords: 10 })
  try {
    const topic = uniqueTopic('rules')
    await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
    const idsAfter: number[] = []
    const batches = [1, 2, 3, 4, 5, 6, 7].map((n) => batchOf(topic, 0, `batch-${n}`, 4))
    for (const batch of batches) {
      await publisher.publish(batch, { signal: never })
      idsAfter.push(proxy.count(api.initProducerId))
    }

    // A cluster that has just started may be asked more than once for the first.
    const [first = 0] = idsAfter
    expect(idsAfter.map((count) => count - first)).toEqual([0, 0, 0, 1, 1, 1, 2])
    expect(await valuesIn(witness, topic, 0)).toEqual(batches.flatMap(valuesOf))
  } finally {
    await publisher.close()
  }
})

test('K3 a request carries records of one partition, however many batches are on their way', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topics = [uniqueTopic('rules'), uniqueTopic('rules')]
  for (const topic of topics) await publisher.createTopic(topic, { partitionCount: 4, replicationFactor: null })
  const carried: (readonly TopicPartition[])[] = []
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey !== api.produce) return 'pass'
    const rewrite = (answer: Buffer) => {
      carried.push(partitionsIn(answer))
      return answer
    }
    return { rewrite }
  })

  const places = topics.flatMap((topic) => [0, 1, 2, 3].map((partition) => ({ topic, partition })))
  for (let round = 0; round < 3; round += 1) {
    await Promise.all(
      places.map(({ topic, partition }) =>
        publisher.publish(batchOf(topic, partition, `round-${round}`, 5), { signal: never }),
      ),
    )
  }
  end()

  expect(carried).toHaveLength(24)
  expect(carried.filter((partitions) => partitions.length !== 1)).toEqual([])
  for (const place of places) expect(carried.filter(([only]) => sameAs(place, only))).toHaveLength(3)
})

function sameAs({ topic, partition }: TopicPartition, other: TopicPartition | undefined): boolean {
  return other?.topic === topic && other.partition === partition
}

/** The way to a topic's only partition, of a process that can sleep beyond the time that a delivery has. */
function sleepyWriter(topic: string) {
  const options = resolvePublisherOptions({ brokers: cluster.brokers, clientId: 'sleepy' })
  let sleptMs = 0
  const clock = { ...systemClock, now: () => systemClock.now() + sleptMs }
  return {
    writer: new PartitionWriter({ topic, partition: 0 }, options, clock),
    oversleep: () => {
      sleptMs = options.deliveryTimeoutMs
    },
    hasSlept: () => sleptMs > 0,
  }
}

/** The answer of a broker that asks its client to be quiet for a while. */
function withThrottle(answer: Buffer): Buffer {
  const changed = Buffer.from(answer)
  // Length, correlation.
  changed.writeInt32BE(THROTTLE_MS, 4 + 4)
  return changed
}
