/** What a consumer counts, through the real SDK: the value of each series after work that is known. */
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { v7 as uuidv7 } from 'uuid'
import { type Consumer, startConsumer } from '../../../src/messaging/consumer/consumer.ts'
import { defineHandlers } from '../../../src/messaging/consumer/handlers.ts'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { requestResume, requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import type { OutgoingRecord } from '../../../src/messaging/transport.ts'
import { createTestDatabase } from '../../support/database.ts'
import { readSeries } from '../../support/telemetry/series.ts'
import { TOPIC } from './scripted-subscriber.ts'
import { fast } from './setting.ts'

const GROUP = 'summary'
const SAMPLED = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

const read = readSeries(TOPIC)

interface Setting extends AsyncDisposable {
  readonly db: Knex
  readonly broker: InMemoryBroker
  readonly consumer: Consumer
  /** Publishes one event, or what is to be none, and resolves when the consumer is through with it. */
  process(key: string, headers?: Readonly<Record<string, string>>, value?: string): Promise<void>
  /** How often the handler fails for a key from now on. */
  readonly failures: Map<string, number>
  /** The handler of the key `slow` waits for it. */
  readonly slow: { readonly met: PromiseWithResolvers<void>; readonly goesOn: PromiseWithResolvers<void> }
  /** The broker's time of day. */
  readonly clock: { now: Date }
}

const headersOf = (headers: Readonly<Record<string, string>> = {}) => ({
  event_id: uuidv7(),
  event_type: 'OrderPlaced',
  occurred_at: new Date().toISOString(),
  ...headers,
})

/** A topic with one partition, so that its order is that of the test. */
async function createSetting(): Promise<Setting> {
  const database = await createTestDatabase()
  const { db } = database
  const clock = { now: new Date() }
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 }, now: () => clock.now })
  const failures = new Map<string, number>()
  const slow = { met: Promise.withResolvers<void>(), goesOn: Promise.withResolvers<void>() }
  const handlers = defineHandlers({
    OrderPlaced: async (_trx, { aggregate: { id } }) => {
      const left = failures.get(id) ?? 0
      failures.set(id, left - 1)
      if (left > 0) throw new RangeError('no')
      if (id !== 'slow') return
      slow.met.resolve()
      await slow.goesOn.promise
    },
  })
  const tuning = { ...fast, maxAttempts: 3, deadLetterTopics: false }
  const subscriber = broker.createSubscriber()
  const consumer = startConsumer({ name: GROUP, topics: [TOPIC], db, subscriber, handlers, ...tuning })
  return {
    db,
    broker,
    consumer,
    failures,
    slow,
    clock,
    async process(key, headers, value) {
      await publish(broker, [{ key, value: value ?? '{}', headers: headersOf(headers) }])
      await consumer.whenCaughtUp()
    },
    async [Symbol.asyncDispose]() {
      slow.goesOn.resolve()
      await consumer.stop()
      await broker.close()
      await database[Symbol.asyncDispose]()
    },
  }
}

async function publish(broker: InMemoryBroker, records: readonly OutgoingRecord[]): Promise<void> {
  await broker.publish({ topic: TOPIC, partition: 0, records }, { signal: new AbortController().signal })
}

test('faults are counted from zero, so that the first of each is an increase', async () => {
  await using _setting = await createSetting()

  expect((await read()).values).toMatchObject({
    'outbox.consumer.crashes': 0,
    'outbox.consumer.rebalances': 0,
    'outbox.consumer.order.violations kind=gap': 0,
    'outbox.consumer.order.violations kind=reversal': 0,
  })
})

test('what is delivered to a consumer is counted by what became of it, each delivery once', async () => {
  await using setting = await createSetting()
  const { process, broker, consumer, failures, clock, db } = setting
  const copied = { event_id: uuidv7() }

  await process('one', copied)
  await process('one', copied)
  await publish(
    broker,
    ['a', 'b', 'c'].map((key) => ({ key, value: '{}', headers: headersOf() })),
  )
  await consumer.whenCaughtUp()
  await process('unknown', { event_type: 'OrderTeleported' })
  await process('foreign', { event_id: '' })
  await process('undecodable', {}, '{')
  for (const version of ['1', '3', '2']) await process('versioned', { aggregate_version: version })
  await process('malformed', { traceparent: 'none' })
  clock.now = new Date(Date.now() - 7_200_000)
  await process('old', { traceparent: SAMPLED })
  clock.now = new Date()
  failures.set('flaky', 2)
  await process('flaky')
  failures.set('poisonous', 3)
  await process('poisonous', { traceparent: SAMPLED })
  await process('poisonous')
  failures.set('skipped', 3)
  await process('skipped')
  expect(await requestSkip(db, keyOf('skipped'))).toBe('requested')
  await letGo(db, 'skipped')

  const { values, odd } = await read()
  expect(values).toEqual({
    'outbox.consumer.processed.messages outbox.result=processed': 10,
    'outbox.consumer.processed.messages outbox.result=duplicate': 1,
    'outbox.consumer.processed.messages outbox.result=unknown_type': 1,
    'outbox.consumer.processed.messages outbox.result=retry': 6,
    'outbox.consumer.processed.messages outbox.result=dead_lettered': 4,
    'outbox.consumer.processed.messages outbox.result=waiting': 1,
    'outbox.consumer.processed.messages outbox.result=skipped': 1,
    'outbox.consumer.delivery.delay': 10,
    'outbox.dead_lettered.messages error.type=NO_EVENT_ID': 1,
    'outbox.dead_lettered.messages error.type=UNDECODABLE_PAYLOAD': 1,
    'outbox.dead_lettered.messages error.type=RangeError': 2,
    // The three that came together share one; the one that waits behind a dead letter has one too.
    'messaging.process.duration': 9,
    'messaging.process.duration error.type=UNDECODABLE_PAYLOAD': 1,
    'messaging.process.duration error.type=RangeError': 8,
    'outbox.consumer.order.violations kind=gap': 1,
    'outbox.consumer.order.violations kind=reversal': 1,
    'outbox.traces.detached reason=malformed': 1,
    'outbox.traces.detached reason=old': 1,
    'outbox.consumer.lag': 0,
    'outbox.consumer.rebalances': 0,
    'outbox.consumer.crashes': 0,
  })
  expect(odd).toEqual([])

  expect(await requestResume(db, keyOf('poisonous'))).toBe('requested')
  await letGo(db, 'poisonous')

  // The dead letter, which has a trace to be apart from, and the one behind it.
  expect((await read()).values).toMatchObject({
    'outbox.consumer.processed.messages outbox.result=processed': 12,
    'outbox.traces.detached reason=replay': 1,
  })
})

test('lag is what lies before a consumer, the event in hand included', async () => {
  await using setting = await createSetting()
  const { broker, consumer, slow } = setting

  await publish(
    broker,
    ['slow', 'a', 'b'].map((key) => ({ key, value: '{}', headers: headersOf() })),
  )
  await slow.met.promise
  const behind = (await read()).values['outbox.consumer.lag']
  slow.goesOn.resolve()
  await consumer.whenCaughtUp()

  expect([behind, (await read()).values['outbox.consumer.lag']]).toEqual([3, 0])
})

const keyOf = (id: string) => ({ holder: GROUP, topic: TOPIC, aggregateType: 'order', aggregateId: id })

async function letGo(db: Knex, id: string): Promise<void> {
  const isHeld = async () => (await listHeldKeys(db)).some(({ aggregateId }) => aggregateId === id)
  await eventually(`the key ${id} is let go`, async () => !(await isHeld()))
}
