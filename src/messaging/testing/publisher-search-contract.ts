/** What every publisher keeps when it looks for an event: it is found, or certainly not there. */
import assert from 'node:assert/strict'
import { PublishError } from '../errors.ts'
import type { OutgoingRecord, Publisher } from '../transport.ts'
import type { ContractBroker, ContractHarness } from './contract-harness.ts'

const never = new AbortController().signal

/** Milliseconds: all that a test publishes is younger. */
const LONG_AGO = 3_600_000

/** Registers the tests of searching, as part of the publisher's contract. */
export function publisherSearchContract({ test, open, unique }: ContractHarness): void {
  test('finds an event in its partition, the first of its records, and in no other', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const records = ['a', 'b', 'c', 'b', 'd'].map(recordOf)
    await publisher.publish({ topic, partition: 1, records }, { signal: never })
    await publisher.publish({ topic, partition: 2, records: [recordOf('e')] }, { signal: never })

    const find = (eventId: string, partition: number) =>
      publisher.findEvent({ topic, partition, eventId, from: since(LONG_AGO) }, { signal: never })
    assert.equal(await find('b', 1), 1n)
    assert.equal(await find('d', 1), 4n)
    assert.equal(await find('e', 1), null)
    assert.equal(await find('b', 2), null)
    assert.equal(await find('b', 0), null)
  })

  test('finds an event that was published after the time from which it looks, whoever published it', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publisher.publish({ topic, partition: 0, records: [recordOf('before')] }, { signal: never })
    const from = new Date()
    const other = broker.createPublisher()
    await other.publish({ topic, partition: 0, records: [recordOf('after')] }, { signal: never })

    assert.equal(await publisher.findEvent({ topic, partition: 0, eventId: 'after', from }, { signal: never }), 1n)
  })

  test('finds the last of many records, and says of none that it is there', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const value = 'x'.repeat(1_000)
    for (let batch = 0; batch < 8; batch += 1) {
      const records = Array.from({ length: 800 }, (_, n) => ({ ...recordOf(`${batch}-${n}`), value }))
      await publisher.publish({ topic, partition: 0, records }, { signal: never })
    }

    const search = { topic, partition: 0, from: since(LONG_AGO) }
    assert.equal(await publisher.findEvent({ ...search, eventId: '7-799' }, { signal: never }), 6_399n)
    assert.equal(await publisher.findEvent({ ...search, eventId: '8-0' }, { signal: never }), null)
  })

  test('names a topic or a partition that is not there, instead of finding nothing', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    for (const where of [
      { topic: unique('missing'), partition: 0 },
      { topic, partition: 7 },
    ]) {
      const search = { ...where, eventId: 'a', from: since(LONG_AGO) }
      const failure = await failureOf(publisher.findEvent(search, { signal: never }))
      assert.deepEqual([failure.kind, failure.topic, failure.partition], ['destination', where.topic, where.partition])
    }
  })

  test('gives a search up when told to, without an answer', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const search = { topic, partition: 0, eventId: 'a', from: since(LONG_AGO) }
    const failure = await failureOf(publisher.findEvent(search, { signal: AbortSignal.abort() }))

    assert.equal(failure.kind, 'outage')
    assert.equal(await publisher.findEvent(search, { signal: never }), null)
  })

  test('says for how long a batch may be on its way', async () => {
    await using broker = await open()

    const { deliveryTimeoutMs } = broker.createPublisher()
    assert.ok(Number.isSafeInteger(deliveryTimeoutMs) && deliveryTimeoutMs >= 0)
  })
}

async function withTopic(
  broker: ContractBroker,
  unique: (name: string) => string,
): Promise<{ publisher: Publisher; topic: string }> {
  const publisher = broker.createPublisher()
  const topic = unique('search')
  await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  return { publisher, topic }
}

function recordOf(eventId: string): OutgoingRecord {
  return { key: 'k', value: '{}', headers: { event_id: eventId } }
}

function since(ms: number): Date {
  return new Date(Date.now() - ms)
}

async function failureOf(work: Promise<unknown>): Promise<PublishError> {
  const error = await work.then(
    () => assert.fail('It was answered'),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof PublishError, String(error))
  return error
}
