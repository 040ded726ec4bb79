/** Why the driver is as it is: what kafkajs does by itself. Where one of these fails, kafkajs has been mended. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Kafka, logLevel, type Producer } from 'kafkajs'
import { createTopics, uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { batchOf, onProduce, valuesIn, valuesOf } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

const stack = new AsyncDisposableStack()
let cluster: ProxiedKafka
let witness: Witness
beforeAll(async () => {
  cluster = stack.use(await startProxiedKafka())
  witness = stack.use(await createWitness(cluster.brokers))
})
afterAll(() => stack.disposeAsync())

test('K1 loses a batch that it acknowledged, when the one before it lost its answer', async () => {
  const { topic, send } = await openBare()
  await send('warm')

  void onProduce(cluster.proxies[0] ?? never(), 'swallow answer')
  const outcomes = await Promise.allSettled([send('first'), send('second')])

  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled'])
  const values = await valuesIn(witness, topic, 0)
  const acknowledged = ['first', 'second'].flatMap((name) => valuesOf(batchOf(topic, 0, name, 10)))
  expect(acknowledged.filter((value) => !values.includes(value))).toHaveLength(10)
})

test('K2 loses a batch that it acknowledged, after one of unknown outcome', async () => {
  const { topic, send } = await openBare()
  await send('warm')

  void onProduce(cluster.proxies[0] ?? never(), 'swallow answer', 2)
  await expect(send('unknown')).rejects.toThrow()
  await send('acknowledged')

  const values = await valuesIn(witness, topic, 0)
  expect(values).toEqual([...valuesOf(batchOf(topic, 0, 'warm', 10)), ...valuesOf(batchOf(topic, 0, 'unknown', 10))])
})

test('K3c resolves a send to a partition that is not there', async () => {
  const { topic, producer } = await openBare()

  await expect(producer.send({ topic, messages: [{ partition: 7, value: 'gone' }] })).resolves.toEqual([])
})

test('K5 goes on sending after it has been disconnected', async () => {
  // It repeats what was reset long after it has been disconnected.
  const { topic, producer, send } = await openBare({ initialRetryTime: 3_000 })
  const [proxy] = cluster.proxies
  await send('warm')

  const seen = onProduce(proxy ?? never(), 'reset')
  const sending = send('zombie')
  await seen
  await producer.disconnect()
  const requests = proxy?.count(api.produce) ?? 0
  await sending

  expect(proxy?.count(api.produce)).toBeGreaterThan(requests)
  expect(await valuesIn(witness, topic, 0)).toContain('zombie-0')
})

async function openBare({ initialRetryTime = 50 } = {}): Promise<{
  topic: string
  producer: Producer
  send: (name: string) => Promise<unknown>
}> {
  const topic = uniqueTopic('bare')
  await createTopics(witness.admin, { topic, numPartitions: 3 })
  const kafka = new Kafka({
    brokers: [...cluster.brokers],
    logLevel: logLevel.NOTHING,
    // Only an answer that is swallowed takes so long, also on a busy machine.
    requestTimeout: 5_000,
    retry: { retries: 1, initialRetryTime },
  })
  const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, maxInFlightRequests: 5 })
  await producer.connect()
  stack.defer(() => producer.disconnect())
  const send = async (name: string) => {
    const messages = valuesOf(batchOf(topic, 0, name, 10)).map((value) => ({ key: 'k', value, partition: 0 }))
    return await producer.send({ topic, messages, timeout: 1_000 })
  }
  return { topic, producer, send }
}

function never(): never {
  throw new Error('There is a proxy')
}
