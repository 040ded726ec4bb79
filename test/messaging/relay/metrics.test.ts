/** What a relay counts, through the real SDK: the value of each series after work that is known. */
import { expect, test } from '@jest/globals'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { eventually, type Fault, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { orderEvent, plainEvent } from '../../support/events.ts'
import { startLoneWorker } from '../../support/relay/lone-worker.ts'
import { readSeries } from '../../support/telemetry/series.ts'
import { createRelaySetting, type RelaySetting, TOPIC } from './setting.ts'

const SAMPLED = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

const read = readSeries(TOPIC)

const refused: Fault = { kind: 'refused', failure: 'record', reason: 'INVALID_RECORD' }
const forbidden: Fault = { kind: 'refused', failure: 'destination', reason: 'TOPIC_AUTHORIZATION_FAILED' }

test('what a relay publishes, fails to send, tries again, parks and skips is counted, each once', async () => {
  await using setting = await createRelaySetting()
  await setting.append(orderEvent('OrderPlaced', 'old'), orderEvent('OrderPlaced', 'malformed'))
  await setTrace(setting, 'old', { traceparent: SAMPLED, age: '2 hours' })
  await setTrace(setting, 'malformed', { traceparent: 'none', age: '0' })
  setting.start({ maxAttempts: 2 })
  await setting.drained()

  await setting.append(...[1, 2, 3].map(() => orderEvent('OrderPlaced', 'three of one key')))
  await setting.drained()
  failNext(setting, 'forbidden', [forbidden])
  await setting.append(orderEvent('OrderPlaced', 'forbidden'))
  await setting.drained()
  failNext(setting, 'held', [refused, forbidden])
  await setting.append(orderEvent('OrderPlaced', 'held'))
  await setting.drained()
  failNext(setting, 'parked', [refused, refused])
  await setting.append(orderEvent('OrderPlaced', 'parked'))
  const key = { holder: 'relay', topic: TOPIC, aggregateType: 'order', aggregateId: 'parked' }
  await eventually('the key is parked', async () => (await requestSkip(setting.db, key)) === 'requested')
  await eventually('the key is let go', async () => (await listHeldKeys(setting.db)).length === 0)

  const { values, odd } = await read()
  expect(values).toEqual({
    'outbox.enqueued.messages': 8,
    'outbox.relay.published.messages': 7,
    'outbox.publish.delay': 7,
    // Of the attempt that was forbidden, and of the held key's second one.
    'outbox.relay.retries error.type=TOPIC_AUTHORIZATION_FAILED': 2,
    // Of the held key's first attempt, and of the parked one's; its second makes none necessary.
    'outbox.relay.retries error.type=INVALID_RECORD': 2,
    'messaging.client.sent.messages': 7,
    'messaging.client.sent.messages error.type=TOPIC_AUTHORIZATION_FAILED': 2,
    'messaging.client.sent.messages error.type=INVALID_RECORD': 3,
    // The three of one key go together, all others alone.
    'messaging.client.operation.duration': 5,
    'messaging.client.operation.duration error.type=TOPIC_AUTHORIZATION_FAILED': 2,
    'messaging.client.operation.duration error.type=INVALID_RECORD': 3,
    'outbox.relay.batch.size': 10,
    'outbox.relay.poll.duration outbox.poll.result=rows': expect.any(Number),
    'outbox.relay.poll.duration outbox.poll.result=empty': expect.any(Number),
    'outbox.relay.last_poll.timestamp thread=relay-0': expect.any(Number),
    'outbox.traces.detached reason=old': 1,
    'outbox.traces.detached reason=malformed': 1,
    'outbox.lanes.owned': 64,
    'outbox.topic.paused': 0,
    'outbox.topic.partitions.changed': 0,
    'outbox.topic.weak': 1,
    'outbox.wake.mode mode=notify': 1,
    'outbox.wake.mode mode=poll': 0,
  })
  expect(odd).toEqual([])
})

test('a read that fails is counted apart from those that find rows or none', async () => {
  let failing = true
  const outbox = new InMemoryOutbox({
    clock: systemClock,
    hash: murmur2,
    topicFor: defaultTopicFor(''),
    around: async (call, apply) => {
      if (call !== 'read' || !failing) return apply()
      failing = false
      throw new Error('The database is away')
    },
  })
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const worker = await startLoneWorker(outbox, { publisher: broker.createPublisher(), clock: systemClock })
  const [event] = outbox.append([plainEvent('Placed')])
  worker.wake([event?.lane ?? 0])
  await broker.receive(1)
  await worker.stop()

  expect((await read()).values).toMatchObject({ 'outbox.relay.poll.duration outbox.poll.result=error': 1 })
})

/** The next sends of a key's events meet these faults, one after the other. */
function failNext({ broker }: RelaySetting, key: string, faults: readonly Fault[]): void {
  const left = [...faults]
  broker.faults.add(({ records }) => (records.some((record) => record.key === key) ? (left.shift() ?? null) : null))
}

async function setTrace(
  { db }: RelaySetting,
  key: string,
  { traceparent, age }: { readonly traceparent: string; readonly age: string },
): Promise<void> {
  await db.raw(
    'update outbox set traceparent = :traceparent, created_at = created_at - :age::interval where aggregate_id = :key',
    { traceparent, age, key },
  )
}
