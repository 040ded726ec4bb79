/** The same against a real broker behind a proxy that loses what it is told to lose. */
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { createKafkaPublisher } from '../../../src/messaging/kafka/index.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { startRelay } from '../../../src/messaging/relay/relay.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { Verdict } from '../../support/proxy/kafka-proxy.ts'
import { type ProxiedKafka, startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { createWitness, type Witness } from '../kafka/witness.ts'
import { quick } from './setting.ts'

const opened = new AsyncDisposableStack()
let cluster: ProxiedKafka
let witness: Witness
beforeAll(async () => {
  cluster = opened.use(await startProxiedKafka(1, { 'transaction.partition.verification.enable': false }))
  witness = opened.use(await createWitness(cluster.brokers))
})
afterAll(() => opened.disposeAsync())

test('counts an event as published whose answer was lost, and skips none', async () => {
  await using scene = await createScene()
  await scene.loseThenRefuse('swallow answer')

  await scene.skip()
  expect(await scene.skipped()).toEqual([])
  expect(await scene.types()).toEqual(['First', 'After'])
})

test('skips an event whose request was lost, and nothing brings it afterwards', async () => {
  await using scene = await createScene()
  const allow = await scene.loseThenRefuse('drop request')

  await allow()
  await scene.skip()
  await scene.stop()
  expect(await scene.skipped()).toEqual(['First'])
  expect(await scene.types()).toEqual(['After'])
})

/** A relay with a topic of its own, whose first event the broker can be made to refuse. */
async function createScene() {
  const stack = new AsyncDisposableStack()
  const { db } = stack.use(await createTestDatabase())
  const topic = uniqueTopic('skip')
  const key = { holder: 'relay', topic, aggregateType: 'order', aggregateId: 'bad' }
  const publisher = createKafkaPublisher({ brokers: cluster.brokers, clientId: 'relay', deliveryTimeoutMs: 1_000 })
  stack.defer(() => publisher.close())
  await publisher.createTopic(topic, { partitionCount: 2, replicationFactor: null })
  const relay = startRelay({ db, publisher, ...quick, maxAttempts: 1, topicFor: () => topic })
  stack.defer(() => relay.stop())

  async function limit(bytes: number): Promise<void> {
    const configEntries = [{ name: 'max.message.bytes', value: String(bytes) }]
    await witness.admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries }] })
  }

  return {
    /** Appends two events of one key, loses what is said of the first, and has it refused until its key is parked. Returns what ends the refusals. */
    async loseThenRefuse(verdict: Verdict): Promise<() => Promise<void>> {
      const again = Promise.withResolvers<void>()
      let requests = 0
      const end = cluster.proxies[0]?.rule(({ apiKey }) => {
        if (apiKey !== api.produce) return 'pass'
        requests += 1
        if (requests > 1) again.resolve()
        return requests === 1 ? verdict : 'reset'
      })
      // Alone in its batch: the broker would keep the second too.
      await append('First', 'x'.repeat(4_000))
      await again.promise
      await append('After', 'x')
      await limit(2_000)
      end?.()
      await eventually('the key is parked', async () => (await db('held_keys').where({ state: 'parked' })).length === 1)
      return () => limit(1_000_000)
    },
    /** Asks for the skip, in time; resolves once the key is let go. */
    async skip(): Promise<void> {
      await db('held_keys').update({ next_attempt_at: db.fn.now() })
      await requestSkip(db, key)
      await eventually('the key is let go', async () => (await db('held_keys')).length === 0)
    },
    skipped: async () => await db('dead_letters').where({ holder: 'relay', state: 'skipped' }).pluck('event_type'),
    types: async () => {
      const partitions = await Promise.all([0, 1].map((partition) => witness.read({ topic, partition })))
      return partitions.flat().map(({ headers }) => headers.event_type)
    },
    stop: () => relay.stop(),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }

  async function append(type: string, note: string): Promise<void> {
    await inTransaction(db, async (trx) => {
      await appendToOutbox(trx, [orderEvent(type, 'bad', { payload: { note } })])
    })
  }
}
