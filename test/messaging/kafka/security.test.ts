/** TLS and SASL: what is asked for is had, or nothing is. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals'
import { createCertificate, type ServerCertificate } from '../../../src/local/certificates.ts'
import { type Kafka, startKafka } from '../../../src/local/kafka.ts'
import {
  createKafkaSubscriber,
  type KafkaPublisherOptions,
  type KafkaSasl,
} from '../../../src/messaging/kafka/index.ts'
import type { Logger } from '../../../src/messaging/lifecycle/logger.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'
import { uniqueTopic } from '../../support/kafka.ts'
import { batchOf, never, openPublisher } from './publishing.ts'

jest.setTimeout(60_000)

const username = 'relay'
const password = 'canary-secret-4711'

const stack = new AsyncDisposableStack()
let kafka: Kafka
let certificate: ServerCertificate
let strange: ServerCertificate
beforeAll(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-test-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  certificate = await createCertificate(join(dir, 'tls'))
  strange = await createCertificate(join(dir, 'strange'))
  const secure = { certificate, username, password }
  kafka = await startKafka({ dir: join(dir, 'kafka'), heapMb: 384, jvm: ['-XX:TieredStopAtLevel=1'], secure })
  stack.defer(() => kafka.kill())
})
afterAll(() => stack.disposeAsync())

test.each(['scram-sha-256', 'scram-sha-512'] as const)('publishes and reads over TLS with %s', async (mechanism) => {
  const options = { ...secured(), sasl: { mechanism, username, password } }
  await using publisher = openPublisher(options)
  const topic = uniqueTopic('secure')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'secret', 3), { signal: never })
  const seen: string[] = []

  await using _subscription = createKafkaSubscriber(options).subscribe({
    groupId: uniqueTopic('group'),
    topics: [topic],
    startOffset: async () => 'earliest',
    async deliver({ records }) {
      seen.push(...records.map(({ value }) => value?.toString() ?? 'null'))
      return { nextOffset: (records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
    },
  })

  await eventually('all three', () => seen.length === 3)
})

const wrongs: readonly [string, (right: KafkaPublisherOptions & { sasl: KafkaSasl }) => KafkaPublisherOptions][] = [
  ['a server whose authority it does not know', (right) => ({ ...right, ssl: { ca: strange.ca } })],
  ['a server of another name', (right) => ({ ...right, ssl: { ca: certificate.ca, servername: 'kafka.example.org' } })],
  ['a wrong password', (right) => ({ ...right, sasl: { mechanism: 'scram-sha-256', username, password: 'wrong' } })],
  ['no credentials', ({ sasl: _, ...right }) => right],
  ['no TLS where the server wants it', (right) => ({ ...right, ssl: false })],
  ['a server without TLS', (right) => ({ ...right, brokers: kafka.brokers })],
]

test.each(wrongs)('publishes nothing with %s, and says that it is an outage', async (_, wrong) => {
  const lines: string[] = []
  await using publisher = openPublisher({ ...wrong(secured()), logger: collecting(lines), deliveryTimeoutMs: 1_500 })

  await expect(publisher.publish(batchOf('any', 0, 'x', 1), { signal: never })).rejects.toMatchObject({
    kind: 'outage',
    outcome: 'refused',
  })
  await expect(publisher.ping()).rejects.toMatchObject({ kind: 'outage' })

  expect(lines.join('\n')).not.toContain(password)
})

test.each<[string, Partial<KafkaPublisherOptions>]>([
  ['certificates that are not verified', { ssl: { rejectUnauthorized: false } }],
  ['a password in clear text', { ssl: false, sasl: { mechanism: 'plain', username, password } }],
  ['a token in clear text', { ssl: false, sasl: { mechanism: 'oauthbearer', token: async () => 'token' } }],
  ['no broker', { brokers: [] }],
  ['a broker without port', { brokers: ['kafka.example.org'] }],
  ['no client id', { clientId: '' }],
  ['no delivery time', { deliveryTimeoutMs: 0 }],
])('refuses %s before anything runs, without naming a secret', (_, wrong) => {
  const make = () => openPublisher({ ...secured(), ...wrong })

  expect(make).toThrow(expect.objectContaining({ code: 'MESSAGING_INVALID_OPTION' }))
  expect(make).not.toThrow(password)
})

function secured(): KafkaPublisherOptions & { sasl: KafkaSasl } {
  return {
    brokers: kafka.secureBrokers,
    clientId: 'secure',
    ssl: { ca: certificate.ca },
    sasl: { mechanism: 'scram-sha-256', username, password },
  }
}

function collecting(lines: string[]): Logger {
  const note = (fields: object, message: string) => {
    lines.push(`${message} ${JSON.stringify(fields)}`)
  }
  return { debug: note, info: note, warn: note, error: note }
}
