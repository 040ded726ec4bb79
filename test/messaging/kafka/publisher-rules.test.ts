/** Rules of the driver that another rule would hide: each seen by what goes over the wire. */
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals'
import { uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { KafkaProxy } from '../../support/proxy/kafka-proxy.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { withBaseOffset } from './produce-answers.ts'
import { batchOf, firsts, never, onProduce, openPublisher, valuesIn } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

jest.setTimeout(60_000)

let cluster: ProxiedKafka
let proxy: KafkaProxy
let witness: Witness
beforeAll(async () => {
  cluster = await startProxiedKafka(1, { 'transaction.partition.verification.enable': false })
  const [first] = cluster.proxies
  if (!first) throw new Error('There is a proxy')
  proxy = first
  witness = await createWitness(cluster.brokers)
})
afterAll(async () => {
  await witness.close()
  await cluster[Symbol.asyncDispose]()
})

test('K2 another batch goes over another producer once one of unknown outcome was given up', async () => {
  await using publisher = openPublisher({ ...cluster, deliveryTimeoutMs: 1_000 })
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

test('K2 a first answer that names an offset from before the producer is no acknowledgement', async () => {
  const topic = uniqueTopic('rules')
  {
    await using earlier = openPublisher(cluster)
    await earlier.createTopic(topic, { partitionCount: 1, replicationFactor: null })
    await earlier.publish(batchOf(topic, 0, 'earlier', 2), { signal: never })
  }
  await using publisher = openPublisher(cluster)

  void onProduce(proxy, { rewrite: (answer) => withBaseOffset(answer, topic, 0n) })
  const { baseOffset } = await publisher.publish(batchOf(topic, 0, 'next', 2), { signal: never })

  // Stored by the first attempt, disbelieved, and stored once more by a new producer.
  expect(baseOffset).toBe(4n)
  expect(firsts(await valuesIn(witness, topic, 0))).toEqual(['earlier-0', 'earlier-1', 'next-0', 'next-1'])
})
