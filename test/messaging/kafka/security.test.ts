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

const isLong = process.env.TEST_LONG === '1'
if (isLong) jest.setTimeout(600_000)

/** Milliseconds for which an authentication is good; the client renews it ten seconds before. */
const SESSION_MS = isLong ? 60_000 : 11_000

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
  kafka = await startKafka({
    dir: join(dir, 'kafka'),
    heapMb: 384,
    jvm: ['-XX:TieredStopAtLevel=1'],
    secure,
    settings: { 'connections.max.reauth.ms': SESSION_MS },
  })
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

  await using _subscription = collect(options, topic, seen)

  await eventually('all three', () => seen.length === 3)
})

test('PC-10 loses nothing while authentications expire, under load and after a rest', async () => {
  const options = secured()
  await using publisher = openPublisher(options)
  const topic = uniqueTopic('expiring')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  const seen: string[] = []
  await using subscription = collect(options, topic, seen)

  const until = performance.now() + 1.3 * SESSION_MS
  let count = 0
  for (; performance.now() < until; count += 1) {
    await publisher.publish(batchOf(topic, 0, `load${count}`, 1), { signal: never })
    await pause(100)
  }
  await pause(1.1 * SESSION_MS)
  await publisher.publish(batchOf(topic, 0, 'rested', 1), { signal: never })

  await eventually('all of them', () => seen.includes('rested-0'))
  expect(new Set(seen).size).toBe(count + 1)
  await eventually('running', () => subscription.status().phase === 'running')
})

test('PC-10 a subscriber that is denied says so, and goes on by itself once it is let in', async () => {
  let current = 'wrong'
  const sasl: KafkaSasl = {
    mechanism: 'scram-sha-256',
    username,
    get password() {
      return current
    },
  }
  await using publisher = openPublisher(secured())
  const topic = uniqueTopic('denied')
  await publisher.createTopic(topic, { partitionCount: 1, replicationFactor: null })
  await publisher.publish(batchOf(topic, 0, 'kept', 2), { signal: never })
  const seen: string[] = []
  await using subscription = collect({ ...secured(), sasl }, topic, seen)

  await eventually('the reason', () => subscription.status().phase === 'failing')
  expect(subscription.status().reason).not.toContain(current)
  current = password
  await eventually('both', () => seen.length === 2)
  await eventually('running', () => subscription.status().phase === 'running')
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

function collect(options: KafkaPublisherOptions, topic: string, seen: string[]) {
  return createKafkaSubscriber(options).subscribe({
    groupId: uniqueTopic('group'),
    topics: [topic],
    startOffset: async () => 'earliest',
    async deliver({ records }) {
      seen.push(...records.map(({ value }) => value?.toString() ?? 'null'))
      return { nextOffset: (records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
    },
  })
}

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => {
    setTimeout(resolve, ms)
  })
}

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
