import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, jest, test } from '@jest/globals'
import { type Admin, type KafkaConfig, Kafka as KafkaJs, logLevel, type SASLOptions } from 'kafkajs'
import { createCertificate } from '../../src/local/certificates.ts'
import { freePorts } from '../../src/local/free-ports.ts'
import { type KafkaOptions, startKafka } from '../../src/local/kafka.ts'
import { archiveClasses } from '../../src/local/kafka-class-archive.ts'
import { kafkaJars } from '../../src/local/kafka-jars.ts'
import { askCluster } from '../../src/local/kafka-metadata.ts'
import { createNode } from '../../src/local/kafka-node.ts'
import { planNodes } from '../../src/local/kafka-plan.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { createTopics, testBrokers } from '../support/kafka.ts'

// Up to four starts of a broker, on a busy machine.
jest.setTimeout(600_000)
const small = { heapMb: 256, jvm: ['-XX:TieredStopAtLevel=1'] }

async function temporaryDir() {
  const path = await mkdtemp(join(tmpdir(), 'kafka-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

async function start(options: KafkaOptions) {
  const cluster = await startKafka({ ...small, ...options })
  return { cluster, [Symbol.asyncDispose]: () => cluster.kill() }
}

async function asAdmin<T>(
  brokers: readonly string[],
  work: (admin: Admin) => Promise<T>,
  config: Partial<KafkaConfig> = {},
) {
  const client = new KafkaJs({ brokers: [...brokers], logLevel: logLevel.NOTHING, retry: { retries: 3 }, ...config })
  const admin = client.admin()
  try {
    await admin.connect()
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

test('Kafka comes back with its topics, on other ports, after a stop, in a folder of any name', async () => {
  await using temporary = await temporaryDir()
  const dir = join(temporary.path, 'Zoë, her data')
  await using before = await start({ dir })
  const first = before.cluster
  await asAdmin(first.brokers, (admin) => createTopics(admin, { topic: 'kept' }))
  await first.stop()
  expect(first.nodes[0]?.pid).toBeNull()

  await using again = await start({ dir })

  expect(again.cluster.clusterId).toBe(first.clusterId)
  expect(again.cluster.brokers).not.toEqual(first.brokers)
  expect(await asAdmin(again.cluster.brokers, (admin) => admin.listTopics())).toContain('kept')
})

test('three brokers outlive the loss of one, which comes back to them', async () => {
  await using dir = await temporaryDir()
  const settings = { 'broker.session.timeout.ms': 2_000, 'broker.heartbeat.interval.ms': 300 }
  await using running = await start({ dir: dir.path, nodes: 3, settings })
  const { nodes } = running.cluster
  const [first, , third] = nodes
  if (!first || !third) throw new Error('three nodes')
  // Until the others notice, they name the dead one to ask: no answer is no count.
  const alive = () =>
    asAdmin(running.cluster.brokers, async (admin) => (await admin.describeCluster()).brokers.length).catch(() => 0)
  await eventually('all three', async () => (await alive()) === 3)

  await third.kill('SIGKILL')
  await eventually('two without it', async () => (await alive()) === 2)

  await third.start()
  await eventually('all three again', async () => (await alive()) === 3)
  await asAdmin(running.cluster.brokers, (admin) =>
    createTopics(admin, { topic: 'replicated', numPartitions: 1, replicationFactor: 3 }),
  )
})

test('clients are told the ports of the proxies that stand before the brokers', async () => {
  await using dir = await temporaryDir()
  const [proxy = 0] = await freePorts(1)

  await using running = await start({ dir: dir.path, advertised: { 1: proxy } })

  expect(running.cluster.brokers).toEqual([`127.0.0.1:${proxy}`])
  const own = running.cluster.nodes[0]?.port ?? 0
  const told = await asAdmin([`127.0.0.1:${own}`], async (admin) => (await admin.describeCluster()).brokers).catch(
    () => [],
  )
  // The admin client reads the cluster through the advertised port, where nobody listens.
  expect(told).toEqual([])
  expect((await askCluster(own))?.clusterId).toBe(running.cluster.clusterId)
})

test('the secure listener takes the right password over verified TLS, and no other', async () => {
  await using dir = await temporaryDir()
  const certificate = await createCertificate(join(dir.path, 'tls'))
  const user = { username: 'orders', password: 'right' }
  await using running = await start({ dir: join(dir.path, 'kafka'), secure: { certificate, ...user } })
  const { secureBrokers } = running.cluster
  const connect = (password: string, ca: string[], mechanism: 'scram-sha-256' | 'scram-sha-512' = 'scram-sha-256') =>
    asAdmin(secureBrokers, (admin) => admin.listTopics(), {
      ssl: { ca },
      sasl: { mechanism, username: user.username, password } as SASLOptions,
      retry: { retries: 0 },
    })

  expect(await connect('right', [certificate.ca])).toEqual([])
  expect(await connect('right', [certificate.ca], 'scram-sha-512')).toEqual([])
  await expect(connect('wrong', [certificate.ca])).rejects.toThrow(/credentials|authentication/i)
  await expect(connect('right', [])).rejects.toThrow(/certificate/)
})

test('a Kafka that is not this one is not used', async () => {
  await using dir = await temporaryDir()
  const [broker = ''] = testBrokers()
  const foreign = Number(broker.split(':')[1])
  const [plan] = await planNodes({})
  if (!plan) throw new Error('a plan has nodes')
  const mistaken = { ...plan, ports: { ...plan.ports, internal: foreign } }
  const jars = await kafkaJars({ onFetch: () => {}, onFetched: archiveClasses })
  const node = await createNode(mistaken, {
    dir: dir.path,
    jars,
    clusterId: 'Kmistaken0000000000000',
    voter: mistaken,
    brokerCount: 1,
    secure: null,
    settings: {},
    ...small,
  })

  await expect(node.start()).rejects.toThrow(`answers at 127.0.0.1:${foreign}. Nothing was done to it.`)

  expect(node.pid).toBeNull()
  expect(await askCluster(foreign)).not.toBeNull()
})

test('a folder keeps the number of nodes that it was made for', async () => {
  await using dir = await temporaryDir()
  const one = await startKafka({ dir: dir.path, ...small })
  await one.kill()

  await expect(start({ dir: dir.path, nodes: 3 })).rejects.toThrow('holds a Kafka of 1 nodes, not 3')
})
