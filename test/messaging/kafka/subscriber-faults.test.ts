/** The subscriber against a real broker behind a proxy: it never stops by itself, and never passes over a record. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Kafka, logLevel } from 'kafkajs'
import { createKafkaSubscriber, type KafkaSubscriberOptions } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'
import type { ActiveSubscription, IncomingBatch, Subscription } from '../../../src/messaging/transport.ts'
import { createTopics, uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { KafkaProxy } from '../../support/proxy/kafka-proxy.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { batchOf, firsts, never, openPublisher, valuesOf } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

const GROUP_AUTHORIZATION_FAILED = 30

const stack = new AsyncDisposableStack()
let cluster: ProxiedKafka
let proxy: KafkaProxy
let witness: Witness
beforeAll(async () => {
  cluster = stack.use(await startProxiedKafka())
  const [first] = cluster.proxies
  if (!first) throw new Error('There is a proxy')
  proxy = first
  witness = stack.use(await createWitness(cluster.brokers))
})
afterAll(() => stack.disposeAsync())

test.each(['gzip', 'snappy', 'lz4', 'zstd'])(
  'PC-59 reads records that the broker keeps compressed with %s',
  async (codec) => {
    const topic = uniqueTopic(codec)
    const configEntries = [{ name: 'compression.type', value: codec }]
    await createTopics(witness.admin, { topic, numPartitions: 1, configEntries })
    await using publisher = openPublisher({ brokers: cluster.brokers })
    const batches = ['one', 'two'].map((name) => batchOf(topic, 0, `${name}-${'long '.repeat(2_000)}`, 20))
    for (const batch of batches) await publisher.publish(batch, { signal: never })
    const seen: string[] = []

    await using _subscription = begin({ topics: [topic], deliver: noting(seen) })

    await eventually('all of them', () => seen.length === 40)
    expect(seen).toEqual(batches.flatMap(valuesOf))
  },
)

test('K8 stays a member while a delivery takes longer than the session', async () => {
  const { topic, values } = await filled(2, 5)
  const seen: string[] = []
  let deliveries = 0

  await using subscription = begin({
    topics: [topic],
    deliver: async (batch) => {
      if (batch.partition === 0) {
        deliveries += 1
        await Promise.race([aborted(batch.signal), pause(8_000)])
        if (batch.signal.aborted) return { nextOffset: batch.records[0]?.offset ?? 0n, pauseMs: 0 }
      }
      return await noting(seen)(batch)
    },
  })

  await eventually('both partitions', () => seen.length === 10)
  expect(deliveries).toBe(1)
  expect([...seen].sort()).toEqual([...values].sort())
  expect(subscription.status()).toMatchObject({ phase: 'running', reason: null })
})

test('PC-58 goes on, and skips nothing, after the broker has been frozen and cut off again and again', async () => {
  const { topic } = await filled(3, 1)
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const seen: string[] = []
  await using subscription = begin({ topics: [topic], deliver: noting(seen) })
  await eventually('the first', () => seen.length === 3)

  for (const [round, trouble] of ['freeze', 'cut', 'freeze', 'cut'].entries()) {
    if (trouble === 'freeze') proxy.freeze()
    else proxy.cut()
    await pause(1_500)
    if (trouble === 'freeze') proxy.thaw()
    else proxy.mend()
    for (const partition of [0, 1, 2])
      await publisher.publish(batchOf(topic, partition, `r${round}p${partition}`, 2), { signal: never })
  }

  await eventually('everything', () => firsts(seen).length === 3 + 4 * 3 * 2)
  await eventually('running', () => subscription.status().phase === 'running')
  for (const partition of [0, 1, 2]) {
    const rounds = [0, 1, 2, 3].flatMap((round) => valuesOf(batchOf(topic, partition, `r${round}p${partition}`, 2)))
    expect(firsts(seen).filter((value) => rounds.includes(value))).toEqual(rounds)
  }
})

test('a partition whose leader is another one asks who it is, and begins at once', async () => {
  const { topic } = await filled(1, 1)
  const seen: string[] = []
  let refused = 0
  let isAsked = false
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey === api.metadata && refused > 0) isAsked = true
    if (apiKey !== api.listOffsets || isAsked) return 'pass'
    refused += 1
    return { rewrite: (answer) => fromNoLeader(answer, topic) }
  })

  await using _subscription = begin({ topics: [topic], deliver: noting(seen) })

  await eventually('the record', () => seen.length === 1)
  end()
  expect(refused).toBeGreaterThan(0)
  // By itself the client looks every half minute, and would have been refused a dozen times.
  expect(refused).toBeLessThanOrEqual(6)
})

test('PC-58 builds the membership anew when fetches bring nothing though there is more', async () => {
  const { topic } = await filled(1, 1)
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const seen: string[] = []
  await using subscription = begin({ topics: [topic], deliver: noting(seen) }, { stallTimeoutMs: 4_000 })
  await eventually('the first', () => seen.length === 1)

  const end = proxy.rule(({ apiKey }) => (apiKey === api.fetch ? 'drop request' : 'pass'))
  await publisher.publish(batchOf(topic, 0, 'more', 1), { signal: never })
  await eventually('the reason', () => subscription.status().phase === 'failing')
  end()

  await eventually('the second', () => seen.includes('more-0'))
  await eventually('running', () => subscription.status().phase === 'running')
})

test('builds the membership anew although a delivery hangs, and never delivers that partition twice at once', async () => {
  const { topic } = await filled(2, 1)
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const hanging = Promise.withResolvers<void>()
  const seen: string[] = []
  let hung = 0
  await using subscription = begin(
    {
      topics: [topic],
      deliver: async (batch) => {
        if (batch.partition === 0) {
          hung += 1
          await hanging.promise
        }
        return await noting(seen)(batch)
      },
    },
    { stallTimeoutMs: 4_000 },
  )
  await eventually('the hanging one and the other', () => hung === 1 && seen.length === 1)

  const end = proxy.rule(({ apiKey }) => (apiKey === api.fetch ? 'drop request' : 'pass'))
  await eventually('the reason', () => subscription.status().phase === 'failing')
  end()
  await publisher.publish(batchOf(topic, 1, 'more', 1), { signal: never })
  await eventually('the other partition', () => seen.includes('more-0'))
  expect(hung).toBe(1)

  hanging.resolve()
  await eventually('the hanging one again', () => seen.filter((value) => value === 'p0-0').length >= 1)
})

test('a delivery that ends while the client is crashing and a broker is silent ends nothing else, and is made again', async () => {
  const { topic } = await filled(1, 1)
  const begun = Promise.withResolvers<void>()
  const freed = Promise.withResolvers<void>()
  const seen: string[] = []
  await using subscription = begin({
    topics: [topic],
    deliver: async (batch) => {
      begun.resolve()
      await freed.promise
      return await noting(seen)(batch)
    },
  })
  await begun.promise

  const [asked, left] = [proxy.count(api.listOffsets), proxy.count(api.leaveGroup)]
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey === api.listOffsets) return 'swallow answer'
    // Only once the client waits for an answer that does not come: it closes its connections after that.
    const isWaiting = proxy.count(api.listOffsets) > asked
    return apiKey === api.heartbeat && isWaiting ? { rewrite: withoutRight } : 'pass'
  })
  await eventually('it leaves the group', () => proxy.count(api.leaveGroup) > left)
  await pause(200)
  freed.resolve()
  end()

  await eventually('the reason', () => subscription.status().phase === 'failing')
  await eventually('running', () => subscription.status().phase === 'running')
  await eventually('the record, as its delivery was not committed', () => seen.length >= 2)
})

test('passes over what an aborted transaction left, and commits beyond it', async () => {
  const { topic } = await filled(1, 1)
  const kafka = new Kafka({ brokers: [...cluster.brokers], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: [{ value: 'never', partition: 0 }] })
  await transaction.abort()
  await producer.disconnect()
  const groupId = uniqueTopic('group')
  const seen: string[] = []

  await using subscription = begin({ groupId, topics: [topic], deliver: noting(seen) })

  // One record, one that was aborted, one marker of the abortion.
  await eventually('the commit', async () => (await witness.committed(groupId, { topic, partition: 0 })) === 3n)
  expect(seen).toHaveLength(1)
  expect(subscription.status().partitions).toMatchObject([{ nextOffset: 3n, endOffset: 3n }])
})

test('hands out nothing of aborted transactions that overlap', async () => {
  const { topic, values } = await filled(1, 1)
  const kafka = new Kafka({ brokers: [...cluster.brokers], logLevel: logLevel.NOTHING })
  await using producers = new AsyncDisposableStack()
  const begun = async (name: string) => {
    const producer = kafka.producer({ transactionalId: `${topic}-${name}`, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    producers.defer(() => producer.disconnect())
    const transaction = await producer.transaction()
    // The key is what markers of an abortion have, which is nobody's privilege.
    await transaction.send({ topic, messages: [{ key: '\0\0\0\0', value: name, partition: 0 }] })
    return transaction
  }
  // The one that begins second is aborted first, and the third while a fourth goes on to its commit.
  const [first, second] = [await begun('first'), await begun('second')]
  await second.abort()
  await first.abort()
  const [third, fourth] = [await begun('third'), await begun('fourth')]
  await third.abort()
  await fourth.commit()
  const seen: string[] = []

  await using _subscription = begin({ topics: [topic], deliver: noting(seen) })

  await eventually('what was committed', () => seen.includes('fourth'))
  expect(seen).toEqual([...values, 'fourth'])
})

test('a commit that has failed is repeated although nothing more comes', async () => {
  const { topic } = await filled(1, 1)
  const groupId = uniqueTopic('group')
  const seen: string[] = []
  let commits = 0
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey !== api.offsetCommit) return 'pass'
    commits += 1
    return commits === 1 ? { rewrite: asTooLarge } : 'pass'
  })

  await using _subscription = begin({ groupId, topics: [topic], deliver: noting(seen) })

  await eventually('the commit', async () => (await witness.committed(groupId, { topic, partition: 0 })) === 1n)
  await eventually('a second one', () => commits >= 2)
  end()
  expect(seen).toHaveLength(1)
})

test('begins again at the first record that is left, when retention was faster', async () => {
  const { topic, values } = await filled(1, 6)
  // Asked first, or the bare client does not find the leader.
  await witness.admin.fetchTopicOffsets(topic)
  await witness.admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
  const seen: string[] = []

  await using _subscription = begin({ topics: [topic], startOffset: async () => 2n, deliver: noting(seen) })

  await eventually('what is left', () => seen.length === 2)
  expect(seen).toEqual(values.slice(4))
})

test('delivers a topic that was made anew and has grown past what is remembered from its first record', async () => {
  const { topic, values } = await filled(1, 5)
  const seen: string[] = []

  // The brokers have forgotten the group's offsets with the topic before; the application has not.
  await using _subscription = begin({ topics: [topic], startOffset: async () => 3n, deliver: noting(seen) })

  await eventually('all of it', () => seen.length === 5)
  expect(seen).toEqual(values)
})

test('delivers a topic that was deleted and made anew from its first record', async () => {
  const { topic } = await filled(1, 5)
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const seen: string[] = []
  await using subscription = begin({ topics: [topic], deliver: noting(seen) })
  await eventually('the old ones', () => seen.length === 5)

  await witness.admin.deleteTopics({ topics: [topic] })
  await eventually('the reason', () => subscription.status().reason !== null)
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'anew', 2), { signal: never })

  await eventually('the new ones', () => seen.includes('anew-0') && seen.includes('anew-1'))
})

function begin(
  subscription: Pick<Subscription, 'topics' | 'deliver'> & Partial<Subscription>,
  options: Partial<KafkaSubscriberOptions> = {},
): ActiveSubscription {
  const subscriber = createKafkaSubscriber({
    brokers: cluster.brokers,
    clientId: 'faults',
    sessionTimeoutMs: 6_000,
    ...options,
  })
  return subscriber.subscribe({ groupId: uniqueTopic('group'), startOffset: async () => 'earliest', ...subscription })
}

/** A topic with `count` records in each of its partitions. */
async function filled(partitionCount: number, count: number): Promise<{ topic: string; values: string[] }> {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = uniqueTopic('consumed')
  await publisher.createTopic(topic, { partitionCount, replicationFactor: null })
  const batches = Array.from({ length: partitionCount }, (_, partition) =>
    batchOf(topic, partition, `p${partition}`, count),
  )
  for (const batch of batches) await publisher.publish(batch, { signal: never })
  return { topic, values: batches.flatMap(valuesOf) }
}

/** An answer to a commit of one partition, as OFFSET_METADATA_TOO_LARGE: its code comes last. */
function asTooLarge(answer: Buffer): Buffer {
  const refused = Buffer.from(answer)
  refused.writeInt16BE(12, refused.length - 2)
  return refused
}

function noting(seen: string[]): (batch: IncomingBatch) => Promise<{ nextOffset: bigint; pauseMs: number }> {
  return async ({ records }) => {
    seen.push(...records.map(({ value }) => value?.toString() ?? 'null'))
    return { nextOffset: (records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
  }
}

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => {
    setTimeout(resolve, ms)
  })
}

async function aborted(signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/** The answer to a heartbeat, as to a member that may not be one: the client gives up. */
function withoutRight(answer: Buffer): Buffer {
  const changed = Buffer.from(answer)
  // Length, correlation, throttling.
  changed.writeInt16BE(GROUP_AUTHORIZATION_FAILED, 4 + 4 + 4)
  return changed
}

/** The answer to a question for offsets of one partition, as of a broker that does not lead it. */
function fromNoLeader(answer: Buffer, topic: string): Buffer {
  const changed = Buffer.from(answer)
  // Length, correlation, throttling; one topic's name; one partition's number.
  changed.writeInt16BE(6, 4 + 4 + 4 + 4 + 2 + Buffer.byteLength(topic) + 4 + 4)
  return changed
}
