/** Faults met over TLS and SCRAM: what is lost on the way is repeated as it is in clear, and stored once. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { createCertificate, type ServerCertificate } from '../../../src/local/certificates.ts'
import { createKafkaSubscriber, type KafkaPublisherOptions } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'
import { uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { KafkaProxy } from '../../support/proxy/kafka-proxy.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { batchOf, never, onProduce, openPublisher, valuesIn, valuesOf } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

const username = 'relay'
const password = 'canary-secret-4712'

const stack = new AsyncDisposableStack()
let certificate: ServerCertificate
let cluster: ProxiedKafka
let proxy: KafkaProxy
let witness: Witness
beforeAll(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-test-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  certificate = await createCertificate(dir)
  cluster = stack.use(await startProxiedKafka(1, {}, { secure: { certificate, username, password } }))
  const [first] = cluster.proxies
  if (!first) throw new Error('There is a proxy')
  proxy = first
  witness = await createWitness(cluster.kafka.brokers)
  stack.defer(() => witness.close())
})
afterAll(() => stack.disposeAsync())

test.each(['swallow answer', 'reset for answer', 'drop request', 'reset'] as const)(
  'K1 stores a batch once whose first produce request meets %j',
  async (verdict) => {
    await using publisher = openPublisher(secured())
    const topic = uniqueTopic('secure-faults')
    await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
    await publisher.publish(batchOf(topic, 0, 'warm', 3), { signal: never })

    const met = onProduce(proxy, verdict)
    await publisher.publish(batchOf(topic, 0, 'met', 3), { signal: never })
    await publisher.publish(batchOf(topic, 0, 'next', 3), { signal: never })
    await met

    const expected = ['warm', 'met', 'next'].flatMap((name) => valuesOf(batchOf(topic, 0, name, 3)))
    expect(await valuesIn(witness, topic, 0)).toEqual(expected)
  },
)

test('publishes and reads on after the connections were cut, with a handshake and an authentication of their own', async () => {
  await using publisher = openPublisher(secured())
  const topic = uniqueTopic('secure-faults')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  const seen: string[] = []
  await using _subscription = createKafkaSubscriber(secured()).subscribe({
    groupId: uniqueTopic('group'),
    topics: [topic],
    startOffset: async () => 'earliest',
    async deliver({ records }) {
      seen.push(...records.map(({ value }) => value?.toString() ?? 'null'))
      return { nextOffset: (records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
    },
  })
  await publisher.publish(batchOf(topic, 0, 'before', 1), { signal: never })
  await eventually('what came before', () => seen.includes('before-0'))
  const handshakes = proxy.count(api.saslHandshake)

  proxy.cut()
  const sending = publisher.publish(batchOf(topic, 0, 'after', 1), { signal: never })
  proxy.mend()
  await sending

  await eventually('what came after', () => seen.includes('after-0'))
  expect(proxy.count(api.saslHandshake)).toBeGreaterThan(handshakes)
})

function secured(): KafkaPublisherOptions {
  return {
    brokers: cluster.brokers,
    clientId: 'secure-faults',
    ssl: { ca: certificate.ca },
    sasl: { mechanism: 'scram-sha-512', username, password },
  }
}
