/** The publisher against a real broker behind a proxy that loses answers: whatever happens, what it acknowledges is there. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { KafkaProxy } from '../../support/proxy/kafka-proxy.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { isAboutTopic, withoutTopic, withPartitions } from './metadata-answers.ts'
import { withBaseOffset, withErrorCode } from './produce-answers.ts'
import { batchOf, firsts, never, onProduce, openPublisher, untilStored, valuesIn, valuesOf } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

const HOUR_MS = 3_600_000

/** Milliseconds of delivery for a batch that is to be given up: a publisher that is well needs less, also on a busy machine. */
const SHORT_MS = 4_000

const stack = new AsyncDisposableStack()
let cluster: ProxiedKafka
let proxy: KafkaProxy
let witness: Witness
beforeAll(async () => {
  const started = await startProxiedKafka(1, {
    'transaction.partition.verification.enable': false,
    'producer.id.expiration.ms': 3_000,
    'producer.id.expiration.check.interval.ms': 500,
  })
  cluster = stack.use(started)
  const [first] = cluster.proxies
  if (!first) throw new Error('There is a proxy')
  proxy = first
  witness = stack.use(await createWitness(cluster.brokers))
})
afterAll(() => stack.disposeAsync())

test('K1 keeps both batches when the answer to the first is lost, each once', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 10), { signal: never })

  const lost = onProduce(proxy, 'reset for answer')
  await publisher.publish(batchOf(topic, 0, 'first', 10), { signal: never })
  await publisher.publish(batchOf(topic, 0, 'second', 10), { signal: never })
  await lost

  const expected = ['warm', 'first', 'second'].flatMap((name) => valuesOf(batchOf(topic, 0, name, 10)))
  expect(await valuesIn(witness, topic, 0)).toEqual(expected)
})

test('K2 stores a batch of the same size after one of unknown outcome was given up', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs: SHORT_MS })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 10), { signal: never })

  const unknown = batchOf(topic, 0, 'unknown', 10)
  void onProduce(proxy, 'swallow answer')
  await expect(publisher.publish(unknown, { signal: never })).rejects.toMatchObject({
    kind: 'outage',
    outcome: 'unknown',
  })
  const { baseOffset } = await publisher.publish(batchOf(topic, 0, 'next', 10), { signal: never })

  expect(baseOffset).toBe(20n)
  const expected = ['warm', 'unknown', 'next'].flatMap((name) => valuesOf(batchOf(topic, 0, name, 10)))
  expect(await valuesIn(witness, topic, 0)).toEqual(expected)
})

test('K5 PC-04 sends nothing more once it has given a batch up', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 1), { signal: never })
  const giveUp = new AbortController()

  const seen = onProduce(proxy, 'reset')
  const sending = publisher.publish(batchOf(topic, 0, 'zombie', 5), { signal: giveUp.signal })
  await seen
  giveUp.abort()
  await expect(sending).rejects.toMatchObject({ kind: 'outage', outcome: 'unknown' })
  const requests = proxy.count(api.produce)
  // Long enough for every repeat that kafkajs would have made, with other batches to fill the time.
  const until = performance.now() + 1_500
  let others = 0
  for (; performance.now() < until; others += 1) {
    await publisher.publish(batchOf(topic, 1, `other${others}`, 5), { signal: never })
  }
  await publisher.publish(batchOf(topic, 0, 'later', 5), { signal: never })
  await publisher.close()

  expect(proxy.count(api.produce)).toBe(requests + others + 1)
  expect(await valuesIn(witness, topic, 0)).toEqual(['warm-0', ...valuesOf(batchOf(topic, 0, 'later', 5))])
})

test('PC-04 repeats a batch at most, and overtakes none, when the broker was frozen beyond its delivery time', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs: SHORT_MS })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 1), { signal: never })

  proxy.freeze()
  const older = batchOf(topic, 0, 'older', 3)
  await expect(publisher.publish(older, { signal: never })).rejects.toMatchObject({ kind: 'outage' })
  proxy.thaw()
  await untilStored(() => publisher.publish(older, { signal: never }))
  await publisher.publish(batchOf(topic, 0, 'newer', 3), { signal: never })
  await publisher.close()

  const expected = ['warm-0', ...valuesOf(older), ...valuesOf(batchOf(topic, 0, 'newer', 3))]
  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(expected)
})

test('K6 PC-02 lets good topics flow while a deleted one fails by name', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs: 8_000 })
  const [bad, good] = [await newTopic(publisher), await newTopic(publisher)]
  for (const topic of [bad, good]) await publisher.publish(batchOf(topic, 0, 'warm', 1), { signal: never })
  await witness.admin.deleteTopics({ topics: [bad] })

  const refused = publisher.publish(batchOf(bad, 0, 'gone', 1), { signal: never })
  for (let n = 0; n < 4; n += 1) await publisher.publish(batchOf(good, 0, `good${n}`, 1), { signal: never })

  await expect(refused).rejects.toMatchObject({ kind: 'destination', outcome: 'refused', topic: bad })
  expect(await valuesIn(witness, good, 0)).toHaveLength(5)
})

test.each([
  ['OUT_OF_ORDER_SEQUENCE_NUMBER', 45],
  ['DUPLICATE_SEQUENCE_NUMBER', 46],
  ['INVALID_PRODUCER_EPOCH', 47],
  ['UNKNOWN_PRODUCER_ID', 59],
  ['an error that it does not know', 9_999],
])('K10 goes on with a new producer after %s', async (_, code) => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 2), { signal: never })
  const initialized = proxy.count(api.initProducerId)

  void onProduce(proxy, { rewrite: (answer) => withErrorCode(answer, topic, code) })
  const names = ['one', 'two', 'three']
  for (const name of names) await publisher.publish(batchOf(topic, 0, name, 2), { signal: never })

  expect(proxy.count(api.initProducerId)).toBe(initialized + 1)
  const expected = ['warm', ...names].flatMap((name) => valuesOf(batchOf(topic, 0, name, 2)))
  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(expected)
})

test('PC-01 takes no answer for an acknowledgement that names an offset from before', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 2), { signal: never })

  void onProduce(proxy, { rewrite: (answer) => withBaseOffset(answer, topic, 0n) })
  const { baseOffset } = await publisher.publish(batchOf(topic, 0, 'next', 2), { signal: never })

  // Stored by the first attempt, disbelieved, and stored once more by a new producer.
  expect(baseOffset).toBe(4n)
  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(['warm-0', 'warm-1', 'next-0', 'next-1'])
})

test('PC-08 goes on after the broker has forgotten the producer, and after the topic was made anew', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'one', 2), { signal: never })

  await new Promise((resolve) => {
    setTimeout(resolve, 4_500)
  })
  await publisher.publish(batchOf(topic, 0, 'two', 2), { signal: never })
  expect(await valuesIn(witness, topic, 0)).toEqual(['one-0', 'one-1', 'two-0', 'two-1'])

  await witness.admin.deleteTopics({ topics: [topic] })
  await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'three', 2), { signal: never })

  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(['three-0', 'three-1'])
})

test('PC-09 connects when the first connection is reset, and when Kafka comes late', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await using late = openPublisher({ brokers: cluster.brokers })

  proxy.cut()
  await expect(late.ping()).rejects.toMatchObject({ kind: 'outage' })
  const publishing = late.publish(batchOf(topic, 0, 'late', 1), { signal: never })
  setTimeout(() => {
    proxy.mend()
  }, 1_500)

  expect(await publishing).toEqual({ baseOffset: 0n })
  await late.ping()
})

test('PC-09 gives up in bounded time on a broker that accepts and never answers', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await using other = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs: 1_000 })

  // It stays frozen, so that nothing but their own bounds can end them: seconds, where the client's would be minutes.
  proxy.freeze()
  try {
    const startedAt = performance.now()
    const failure = { kind: 'outage', outcome: 'refused' }
    await expect(other.publish(batchOf(topic, 0, 'x', 1), { signal: never })).rejects.toMatchObject(failure)
    await expect(other.ping()).rejects.toMatchObject({ kind: 'outage' })
    expect(performance.now() - startedAt).toBeLessThan(30_000)
  } finally {
    proxy.thaw()
  }
})

test('K7 waits on for an answer when the clock jumps ahead', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 1), { signal: never })
  const requests = proxy.count(api.produce)
  const seen = onProduce(proxy, { delayMs: 1_000 })

  const publishing = publisher.publish(batchOf(topic, 0, 'late', 1), { signal: never })
  await seen
  using _jump = jumpClock(HOUR_MS)

  expect(await publishing).toEqual({ baseOffset: 1n })
  expect(proxy.count(api.produce)).toBe(requests + 1)
})

test('K7 notices a lost answer in time when the clock jumps back', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 1), { signal: never })
  const seen = onProduce(proxy, 'swallow answer')

  const publishing = publisher.publish(batchOf(topic, 0, 'lost', 1), { signal: never })
  await seen
  using _jump = jumpClock(-HOUR_MS)
  // By the time of day that would be in an hour.
  await publishing

  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(['warm-0', 'lost-0'])
})

test('PC-05 PC-23 blames the destination, and no event, when the broker does not believe our clock', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  await publisher.publish(batchOf(topic, 0, 'warm', 1), { signal: never })

  // Brokers of Kafka 4 take records from up to an hour ahead.
  {
    using _jump = jumpClock(2 * HOUR_MS)
    const early = publisher.publish(batchOf(topic, 0, 'early', 1), { signal: never })
    await expect(early).rejects.toMatchObject({
      kind: 'destination',
      outcome: 'refused',
      reason: 'INVALID_TIMESTAMP',
    })
  }
  await publisher.publish(batchOf(topic, 0, 'early', 1), { signal: never })

  expect(await valuesIn(witness, topic, 0)).toEqual(['warm-0', 'early-0'])
})

test.each([1, 2])(
  'makes a topic although the answer of number %d is that of a broker that has not heard of it',
  async (late) => {
    await using publisher = openPublisher({ brokers: cluster.brokers })
    const topic = uniqueTopic('late-news')
    let told = 0
    const stop = proxy.rule(({ apiKey }) => {
      if (apiKey !== api.metadata) return 'pass'
      const rewrite = (answer: Buffer) => {
        if (!isAboutTopic(answer, topic)) return answer
        told++
        return told === late ? withoutTopic(answer, topic) : answer
      }
      return { rewrite }
    })

    const made = await publisher.createTopic(topic, { partitionCount: 2, replicationFactor: 1 })
    stop()

    expect(made).toMatchObject({ partitionCount: 2, replicationFactor: 1 })
  },
)

test.each([0, 1])(
  'makes a topic with all of its partitions although a broker has heard of %d of them',
  async (heard) => {
    await using publisher = openPublisher({ brokers: cluster.brokers })
    const topic = uniqueTopic('part-news')
    using _ = rewriteFirstAbout(topic, (answer) => withPartitions(answer, topic, heard))

    const made = await publisher.createTopic(topic, { partitionCount: 2, replicationFactor: 1 })

    expect(made).toMatchObject({ partitionCount: 2, replicationFactor: 1 })
  },
)

test('leaves a topic that exists with the partitions it has, although a broker has not heard of it', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = uniqueTopic('old-news')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: 1 })
  using _ = rewriteFirstAbout(topic, (answer) => withoutTopic(answer, topic))

  const found = await publisher.createTopic(topic, { partitionCount: 2, replicationFactor: 1 })

  expect(found).toMatchObject({ partitionCount: 1, replicationFactor: 1 })
})

test('takes a topic of which a broker knows no partition for one that it has not heard of', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })
  const topic = await newTopic(publisher)
  using _ = rewriteFirstAbout(topic, (answer) => withPartitions(answer, topic, 0))

  expect(await publisher.describeTopic(topic)).toBeNull()
})

test('refuses as a destination a topic with more copies than there are brokers', async () => {
  await using publisher = openPublisher({ brokers: cluster.brokers })

  const making = publisher.createTopic(uniqueTopic('copies'), { partitionCount: 1, replicationFactor: 3 })

  await expect(making).rejects.toMatchObject({ kind: 'destination', reason: 'INVALID_REPLICATION_FACTOR' })
})

/** Alters the first answer to a metadata request that has `topic`, until the scope ends. */
function rewriteFirstAbout(topic: string, rewrite: (answer: Buffer) => Buffer): Disposable {
  let isDone = false
  const stop = proxy.rule(({ apiKey }) => {
    if (apiKey !== api.metadata) return 'pass'
    return {
      rewrite: (answer) => {
        if (isDone || !isAboutTopic(answer, topic)) return answer
        isDone = true
        return rewrite(answer)
      },
    }
  })
  return { [Symbol.dispose]: stop }
}

/** Sets the time of day off until the scope ends; the monotonic clock is not touched. */
function jumpClock(ms: number): Disposable {
  const real = Date.now
  Date.now = () => real() + ms
  return {
    [Symbol.dispose]() {
      Date.now = real
    },
  }
}

async function newTopic(publisher: Publisher): Promise<string> {
  const topic = uniqueTopic('faults')
  await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  return topic
}
