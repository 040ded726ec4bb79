/** Publisher and subscriber on three brokers, of which one dies, freezes, hands its partitions over or loses its disk. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals'
import type { KafkaNode } from '../../../src/local/kafka.ts'
import { createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'
import { eventually } from '../../../src/messaging/testing/contract-harness.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { createTopics, uniqueTopic } from '../../support/kafka.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { createVolume, type Volume, volumeProblem } from '../../support/volume.ts'
import { batchOf, firsts, never, openPublisher, untilStored, valuesIn, valuesOf } from './publishing.ts'
import { createWitness, type Witness } from './witness.ts'

// Three brokers on a busy machine, of which one goes and comes back.
jest.setTimeout(900_000)
/** Milliseconds for what begins when a group has formed, or when a broker is missed. */
const PATIENCE_MS = 180_000

const noVolume = await volumeProblem()
/** The third broker keeps everything on a volume of its own, where one can be had. */
let volume: Volume | null = null
let cluster: ProxiedKafka
let witness: Witness
const opened = new AsyncDisposableStack()
beforeAll(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-cluster-'))
  opened.defer(() => rm(dir, { recursive: true, force: true }))
  if (noVolume === null) volume = opened.use(await createVolume({ dir, megabytes: 500, mount: join(dir, 'node-3') }))
  cluster = opened.use(await startProxiedKafka(3, {}, { dir }))
  witness = await createWitness(cluster.brokers)
  opened.defer(() => witness.close())
})
afterAll(() => opened.disposeAsync())

test('K6 writes to and reads from the other partitions while one has no leader, and to all once it is back', async () => {
  const topic = uniqueTopic('leaderless')
  const replicaAssignment = [1, 2, 3].map((id, partition) => ({ partition, replicas: [id] }))
  const configEntries = [{ name: 'min.insync.replicas', value: '1' }]
  const assigned = { topic, numPartitions: -1, replicationFactor: -1, replicaAssignment, configEntries }
  await createTopics(witness.admin, assigned)
  await using publisher = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs: 3_000 })
  await untilStored(() => publisher.publish(batchOf(topic, 1, 'before', 1), { signal: never }))

  const dead = node(2)
  await dead.kill('SIGKILL')
  try {
    const seen: string[] = []
    await using subscription = subscribe(topic, seen)
    await Promise.all([
      untilStored(() => publisher.publish(batchOf(topic, 0, 'zero', 2), { signal: never })),
      untilStored(() => publisher.publish(batchOf(topic, 2, 'two', 2), { signal: never })),
      expect(publisher.publish(batchOf(topic, 1, 'gone', 1), { signal: never })).rejects.toMatchObject({
        kind: 'outage',
      }),
    ])
    // A fresh publisher knows no leader at all, and must not mind.
    await using fresh = openPublisher({ brokers: cluster.brokers })
    await fresh.publish(batchOf(topic, 0, 'fresh', 1), { signal: never })
    await eventually('the others', () => firsts(seen).length === 5, PATIENCE_MS)

    await dead.start()
    await untilStored(() => publisher.publish(batchOf(topic, 1, 'back', 1), { signal: never }))
    await eventually('the one that is back', () => seen.includes('before-0') && seen.includes('back-0'), PATIENCE_MS)
    await eventually('running', () => subscription.status().reason === null, PATIENCE_MS)
  } finally {
    if (dead.pid === null) await dead.start()
  }
})

test.each(['SIGKILL', 'SIGSTOP', 'SIGTERM'] as const)(
  'K3 PC-01 PC-58 loses and reorders nothing when a broker gets %s under load',
  async (signal) => {
    await using publisher = openPublisher({ brokers: cluster.brokers })
    const topic = uniqueTopic('moves')
    await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: 3 })
    await using load = startLoad(publisher, topic)
    const seen: string[] = []
    await using subscription = subscribe(topic, seen)
    await eventually('the load', () => load.counts().every((count) => count > 5), PATIENCE_MS)

    const hit = node(3)
    if (signal === 'SIGTERM') await hit.stop()
    else await hit.kill(signal)
    // The partitions that it led have other leaders once all have moved on.
    await untilAllGoOn(load)
    if (signal === 'SIGSTOP') await hit.kill('SIGCONT')
    else await hit.start()
    const acknowledged = await load.stop()

    for (const [partition, values] of acknowledged.entries()) {
      expect(firsts(await valuesIn(witness, topic, partition))).toEqual(values)
    }
    await eventually('every record', () => firsts(seen).length === acknowledged.flat().length, PATIENCE_MS)
    await eventually('running', () => subscription.status().phase === 'running', PATIENCE_MS)
    for (const values of acknowledged) {
      expect(firsts(seen).filter((value) => values.includes(value))).toEqual(values)
    }
  },
)

/** Whether the broker ends by itself is its own business; that nothing is lost is ours. */
const disks: readonly [
  how: string,
  problem: string | null,
  breakIt: () => Promise<void>,
  mendIt: () => Promise<void>,
][] = [
  ['is lost', null, () => rm(node(3).dataDir, { recursive: true, maxRetries: 20 }), async () => {}],
  ['is full', noVolume, async () => await volume?.fill(), async () => await volume?.makeRoom()],
]
for (const [how, problem, breakIt, mendIt] of disks) {
  const title = `F24 loses and reorders nothing when the disk of a broker ${how}, nor when it comes back`
  ;(problem === null ? test : test.skip)(problem === null ? title : `${title} (not run: ${problem})`, async () => {
    await using publisher = openPublisher({ brokers: cluster.brokers })
    const topic = uniqueTopic('disk')
    await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: 3 })
    await using load = startLoad(publisher, topic)
    await eventually('the load', () => load.counts().every((count) => count > 5), PATIENCE_MS)
    await eventually('all copies', () => isInSync(topic), PATIENCE_MS)

    const hit = node(3)
    await breakIt()
    // Kafka notices at the next write to a file of its own; a disk that can be read is not missed at once.
    await eventually('the broker to notice', () => hit.pid === null, 60_000).catch(() => hit.kill('SIGKILL'))
    await untilAllGoOn(load)
    await mendIt()
    await hit.start()
    await eventually('all copies', () => isInSync(topic), PATIENCE_MS)
    await untilAllGoOn(load)
    const acknowledged = await load.stop()

    for (const [partition, values] of acknowledged.entries()) {
      expect(firsts(await valuesIn(witness, topic, partition))).toEqual(values)
    }
  })
}

test('PC-58 a group whose brokers were away, and whose topic has grown meanwhile, waits for no member that is gone', async () => {
  const topic = uniqueTopic('regrown')
  const groupId = uniqueTopic('group')
  await using publisher = openPublisher({ brokers: cluster.brokers })
  await publisher.createTopic(topic, { partitionCount: 6, replicationFactor: 3 })
  const seen: string[] = []
  await using _one = subscribe(topic, seen, { groupId, sessionTimeoutMs: 6_000 })
  await using _other = subscribe(topic, seen, { groupId, sessionTimeoutMs: 6_000 })
  const fill = (name: string) =>
    Promise.all(
      Array.from({ length: 6 }, (_, partition) =>
        untilStored(() => publisher.publish(batchOf(topic, partition, `${name}-${partition}`, 1), { signal: never })),
      ),
    )
  await fill('before')
  await eventually('all of them', () => firsts(seen).length === 6, PATIENCE_MS)

  await witness.admin.createPartitions({ topicPartitions: [{ topic, count: 7 }] })
  for (const proxy of cluster.proxies) proxy.freeze()
  // Longer than a session: the members are gone when they come back.
  await new Promise((resolve) => setTimeout(resolve, 9_000))
  for (const proxy of cluster.proxies) proxy.thaw()
  let members = 0
  const watched = eventually(
    'all of them again',
    async () => {
      const { groups } = await witness.admin.describeGroups([groupId])
      members = Math.max(members, groups[0]?.members.length ?? 0)
      return firsts(seen).length === 12
    },
    PATIENCE_MS,
  )
  await Promise.all([watched, fill('after')])

  expect(members).toBeLessThanOrEqual(2)
})

/** Whether every broker has every partition of the topic, as far as the cluster knows. */
async function isInSync(topic: string): Promise<boolean> {
  const { topics } = await witness.admin.fetchTopicMetadata({ topics: [topic] })
  return topics.every(({ partitions }) => partitions.every(({ isr }) => isr.length === 3))
}

function node(id: number): KafkaNode {
  const found = cluster.kafka.nodes.find((one) => one.id === id)
  if (!found) throw new Error(`There is a broker ${id}`)
  return found
}

function subscribe(
  topic: string,
  seen: string[],
  { groupId = uniqueTopic('group'), sessionTimeoutMs = 10_000 }: { groupId?: string; sessionTimeoutMs?: number } = {},
) {
  return createKafkaSubscriber({ brokers: cluster.brokers, clientId: 'cluster', sessionTimeoutMs }).subscribe({
    groupId,
    topics: [topic],
    startOffset: async () => 'earliest',
    async deliver({ records }) {
      seen.push(...records.map(({ value }) => value?.toString() ?? 'null'))
      return { nextOffset: (records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
    },
  })
}

/** Resolves once each partition has taken some more. */
async function untilAllGoOn({ counts }: Load): Promise<void> {
  const before = counts()
  await eventually(
    'all partitions to go on',
    () => counts().every((count, partition) => count > (before[partition] ?? 0) + 5),
    PATIENCE_MS,
  )
}

interface Load extends AsyncDisposable {
  /** Records acknowledged, by partition. */
  counts(): readonly number[]
  /** Resolves to what was acknowledged, by partition. */
  stop(): Promise<readonly (readonly string[])[]>
}

/** Publishes to three partitions until it is stopped; what failed goes again, as the relay does it. */
function startLoad(publisher: Publisher, topic: string): Load {
  const acknowledged: string[][] = [[], [], []]
  let stopped = false
  const done = Promise.all(
    acknowledged.map(async (values, partition) => {
      for (let n = 0; !stopped; n += 1) {
        const batch = batchOf(topic, partition, `p${partition}n${n}`, 3)
        await untilStored(() => publisher.publish(batch, { signal: never }))
        values.push(...valuesOf(batch))
        await new Promise((resolve) => {
          setTimeout(resolve, 20)
        })
      }
    }),
  )
  const stop = async () => {
    stopped = true
    await done
    return acknowledged
  }
  return {
    counts: () => acknowledged.map((values) => values.length),
    stop,
    [Symbol.asyncDispose]: async () => void (await stop()),
  }
}
