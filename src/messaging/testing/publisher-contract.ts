/** What every publisher keeps: the promises of the port, as tests. */
import assert from 'node:assert/strict'
import { PublishError } from '../errors.ts'
import type { OutgoingRecord, Publisher } from '../transport.ts'
import type { ContractBroker, ContractHarness } from './contract-harness.ts'
import { publisherSearchContract } from './publisher-search-contract.ts'

const never = new AbortController().signal

/** Registers the tests of the publisher's contract. */
export function publisherContract(harness: ContractHarness): void {
  const { test, open, unique, tooLargeBytes } = harness
  publisherSearchContract(harness)

  test('stores key, value and headers of each record as they were given, in order', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const records = [
      { key: 'a', value: '{"n":1}', headers: { event_id: '1', event_type: 'OrderPlaced' } },
      { key: 'schlüssel/✓', value: Buffer.from([0, 255, 1]), headers: { name: 'Ünïcode ✓' } },
      { key: 'a', value: '{"n":2}', headers: {} },
    ]
    await publisher.publish({ topic, partition: 1, records }, { signal: never })

    const found = await broker.read({ topic, partition: 1 })
    assert.deepEqual(
      found.map(({ key, value, headers }) => ({ key, value: value?.toString('base64'), headers: { ...headers } })),
      records.map(({ key, value, headers }) => ({ key, value: Buffer.from(value).toString('base64'), headers })),
    )
    assert.deepEqual(await broker.read({ topic, partition: 0 }), [])
  })

  test('answers with the offset of the batch’s first record', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const receipts = []
    for (const count of [1, 3, 2]) {
      receipts.push(await publisher.publish({ topic, partition: 0, records: someRecords(count) }, { signal: never }))
    }

    assert.deepEqual(receipts, [{ baseOffset: 0n }, { baseOffset: 1n }, { baseOffset: 4n }])
  })

  test('PC-21 tells a tombstone from every value that looks like nothing', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const values = [null, '', 'null', '{}', '[]']
    const records = values.map((value) => ({ key: 'k', value, headers: { event_id: 'e' } }))
    await publisher.publish({ topic, partition: 0, records }, { signal: never })

    const found = await broker.read({ topic, partition: 0 })
    assert.deepEqual(
      found.map(({ value }) => value?.toString() ?? null),
      values,
    )
    assert.ok(found.every(({ headers }) => headers.event_id === 'e'))
  })

  test('PC-05 gives a record the time of its publication', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const before = Date.now()
    await publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: never })

    const [found] = await broker.read({ topic, partition: 0 })
    assert.ok(found && found.timestamp.getTime() >= before && found.timestamp.getTime() <= Date.now())
  })

  test('PC-02 names a missing topic as a destination in bounded time, and goes on with others', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const missing = unique('missing')

    const failure = await failureOf(
      publisher.publish({ topic: missing, partition: 0, records: someRecords(1) }, { signal: never }),
    )
    assert.deepEqual([failure.kind, failure.outcome, failure.topic], ['destination', 'refused', missing])
    await publisher.publish({ topic, partition: 0, records: someRecords(20) }, { signal: never })

    assert.equal((await broker.read({ topic, partition: 0 })).length, 20)
  })

  test('K3c refuses a partition that the topic does not have', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const failure = await failureOf(
      publisher.publish({ topic, partition: 7, records: someRecords(2) }, { signal: never }),
    )

    assert.deepEqual([failure.kind, failure.outcome, failure.partition], ['destination', 'refused', 7])
    for (const partition of [0, 1, 2]) assert.deepEqual(await broker.read({ topic, partition }), [])
  })

  test('PC-03 refuses a batch with a record that is too large, as a whole, and stores the next one', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const tooLarge = { key: 'k', value: 'x'.repeat(tooLargeBytes), headers: {} }

    const failure = await failureOf(
      publisher.publish({ topic, partition: 0, records: [...someRecords(5), tooLarge] }, { signal: never }),
    )
    assert.deepEqual([failure.kind, failure.outcome, failure.reason], ['record', 'refused', 'MESSAGE_TOO_LARGE'])
    const { baseOffset } = await publisher.publish({ topic, partition: 0, records: someRecords(5) }, { signal: never })

    assert.equal(baseOffset, 0n)
    assert.equal((await broker.read({ topic, partition: 0 })).length, 5)
  })

  test('refuses as a record what is neither text nor bytes, and stores nothing of its batch', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const wrong: readonly Partial<Record<keyof OutgoingRecord, unknown>>[] = [
      { key: 7 },
      { key: null },
      { key: '\ud800' },
      { value: 7 },
      { value: true },
      { value: { n: 1 } },
      { value: 10n },
      { headers: { n: 7 } },
    ]
    for (const part of wrong) {
      const record = { key: 'k', value: 'v', headers: {}, ...part } as OutgoingRecord
      const failure = await failureOf(
        publisher.publish({ topic, partition: 0, records: [...someRecords(1), record] }, { signal: never }),
      )
      assert.deepEqual([failure.kind, failure.outcome], ['record', 'refused'])
    }

    assert.deepEqual(await broker.read({ topic, partition: 0 }), [])
  })

  test('PC-11 makes nothing of an empty batch', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    await publisher.publish({ topic, partition: 0, records: [] }, { signal: never })
    const { baseOffset } = await publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: never })

    assert.equal(baseOffset, 0n)
  })

  test('PC-11 keeps the order of batches that alternate between topics', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const other = unique('other')
    await publisher.createTopic(other, { partitionCount: 3, replicationFactor: null })

    for (let n = 0; n < 10; n += 1) {
      const records = [{ key: 'k', value: String(n), headers: {} }]
      await publisher.publish({ topic: n % 2 === 0 ? topic : other, partition: 2, records }, { signal: never })
    }

    assert.deepEqual(await valuesOf(broker, topic, 2), ['0', '2', '4', '6', '8'])
    assert.deepEqual(await valuesOf(broker, other, 2), ['1', '3', '5', '7', '9'])
  })

  test('K9 publishes to partitions side by side, each in its order', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const expected = Array.from({ length: 30 }, (_, n) => String(n))
    await Promise.all(
      [0, 1, 2].map(async (partition) => {
        for (const value of expected) {
          await publisher.publish({ topic, partition, records: [{ key: 'k', value, headers: {} }] }, { signal: never })
        }
      }),
    )

    for (const partition of [0, 1, 2]) assert.deepEqual(await valuesOf(broker, topic, partition), expected)
  })

  test('refuses a second batch for a partition while one is on its way', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const first = publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: never })
    await assert.rejects(publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: never }))
    await first

    assert.equal((await broker.read({ topic, partition: 0 })).length, 1)
  })

  test('makes a topic once, describes it, and knows none that is not there', async () => {
    await using broker = await open()
    const publisher = broker.createPublisher()
    const topic = unique('made')

    assert.equal(await publisher.describeTopic(topic), null)
    const made = await publisher.createTopic(topic, { partitionCount: 5, replicationFactor: 1 })
    const again = await publisher.createTopic(topic, { partitionCount: 9, replicationFactor: null })

    assert.equal(made.partitionCount, 5)
    assert.equal(made.replicationFactor, 1)
    assert.deepEqual(again, made)
    assert.deepEqual(await publisher.describeTopic(topic), made)
  })

  test('lets two publishers make the same topic at once', async () => {
    await using broker = await open()
    const topic = unique('raced')

    const made = await Promise.all(
      [broker.createPublisher(), broker.createPublisher(), broker.createPublisher()].map((publisher) =>
        publisher.createTopic(topic, { partitionCount: 4, replicationFactor: null }),
      ),
    )

    assert.deepEqual(made, [made[0], made[0], made[0]])
    assert.equal(made[0]?.partitionCount, 4)
  })

  test('refuses as a destination a topic that cannot be made', async () => {
    await using broker = await open()
    const publisher = broker.createPublisher()

    const failure = await failureOf(
      publisher.createTopic('not a topic', { partitionCount: 1, replicationFactor: null }),
    )

    assert.deepEqual([failure.kind, failure.outcome], ['destination', 'refused'])
  })

  test('gives up when told to, and publishes again afterwards', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    const failure = await failureOf(
      publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: AbortSignal.abort() }),
    )
    assert.deepEqual([failure.kind, failure.outcome], ['outage', 'refused'])
    await publisher.publish({ topic, partition: 0, records: someRecords(2) }, { signal: never })

    assert.equal((await broker.read({ topic, partition: 0 })).length, 2)
  })

  test('answers a ping, and closes twice', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)

    await publisher.ping()
    const last = publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: never })
    await Promise.all([publisher.close(), publisher.close()])

    assert.deepEqual(await last, { baseOffset: 0n })
    await assert.rejects(publisher.publish({ topic, partition: 0, records: someRecords(1) }, { signal: never }))
  })
}

async function withTopic(
  broker: ContractBroker,
  unique: (name: string) => string,
): Promise<{ publisher: Publisher; topic: string }> {
  const publisher = broker.createPublisher()
  const topic = unique('contract')
  await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  return { publisher, topic }
}

function someRecords(count: number): readonly OutgoingRecord[] {
  return Array.from({ length: count }, (_, n) => ({
    key: `key-${n}`,
    value: `{"n":${n}}`,
    headers: { event_id: `${n}` },
  }))
}

async function valuesOf(broker: ContractBroker, topic: string, partition: number): Promise<(string | undefined)[]> {
  return (await broker.read({ topic, partition })).map(({ value }) => value?.toString())
}

async function failureOf(work: Promise<unknown>): Promise<PublishError> {
  const error = await work.then(
    () => assert.fail('It was accepted'),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof PublishError, String(error))
  return error
}
