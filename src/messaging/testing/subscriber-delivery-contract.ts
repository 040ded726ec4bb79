/** What a subscriber delivers, in which order, and what it waits for meanwhile. */
import assert from 'node:assert/strict'
import type { IncomingBatch } from '../transport.ts'
import { type ContractHarness, eventually } from './contract-harness.ts'
import { all, begin, never, noting, publish, withTopic } from './contract-subscription.ts'

/** Registers the tests of delivery. */
export function deliveryContract({ test, open, unique }: ContractHarness): void {
  test('PC-57 delivers to a new group everything from the first record on, in order', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 5)
    const seen: string[] = []

    await using subscription = begin(broker, { groupId: unique('group'), topics: [topic], deliver: noting(seen) })
    await eventually('the first five', () => seen.length === 5)
    await publish(publisher, topic, 0, 6, 8)
    await eventually('the next three', () => seen.length === 8)

    assert.deepEqual(seen, ['1', '2', '3', '4', '5', '6', '7', '8'])
    assert.equal(subscription.status().phase, 'running')
  })

  test('hands a record over as it was published, with headers as text', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const records = [
      { key: 'schlüssel', value: '{"ü":1}', headers: { event_id: '✓', ['__proto__']: 'kept' } },
      { key: 'gone', value: null, headers: {} },
    ]
    await publisher.publish({ topic, partition: 1, records }, { signal: never })
    const batches: IncomingBatch[] = []

    await using _subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      deliver: async (batch) => {
        batches.push(batch)
        return all(batch)
      },
    })
    await eventually('both', () => batches.flatMap((batch) => batch.records).length === 2)

    const found = batches.flatMap((batch) => batch.records)
    assert.deepEqual(
      found.map(({ key, value }) => [key?.toString(), value?.toString() ?? null]),
      [
        ['schlüssel', '{"ü":1}'],
        ['gone', null],
      ],
    )
    assert.deepEqual(Object.entries(found[0]?.headers ?? {}).sort(), [
      ['__proto__', 'kept'],
      ['event_id', '✓'],
    ])
    assert.equal(batches[0]?.partition, 1)
    assert.equal(batches.at(-1)?.endOffset, 2n)
  })

  test('delivers one batch of a partition at a time, and several partitions at once', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    for (const partition of [0, 1, 2]) await publish(publisher, topic, partition, 1, 4)
    const inHand = new Map<number, number>()
    let together = 0
    let overlaps = 0
    let delivered = 0
    const everyone = Promise.withResolvers<void>()

    await using _subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      deliver: async (batch) => {
        const count = (inHand.get(batch.partition) ?? 0) + 1
        inHand.set(batch.partition, count)
        if (count > 1) overlaps += 1
        together = Math.max(together, [...inHand.values()].filter((n) => n > 0).length)
        if (together === 3) everyone.resolve()
        await everyone.promise
        inHand.set(batch.partition, count - 1)
        delivered += 1
        return { nextOffset: (batch.records[0]?.offset ?? 0n) + 1n, pauseMs: 0 }
      },
    })

    await eventually('all twelve', () => delivered === 12)
    assert.equal(overlaps, 0)
  })

  test('rests one partition for as long as it is told, while the others flow', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 1)
    await publish(publisher, topic, 1, 1, 1)
    const attempts: number[] = []
    const seen: string[] = []
    let pauseMs = 2_500
    let isReady = false

    await using _subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      deliver: async (batch) => {
        if (batch.partition !== 0) return await noting(seen)(batch)
        attempts.push(performance.now())
        return isReady ? all(batch) : { nextOffset: batch.records[0]?.offset ?? 0n, pauseMs }
      },
    })
    await eventually('the first attempt', () => attempts.length === 1)
    // On a busy machine the others may take longer than a rest, without waiting for it: then they have a longer one.
    for (let value = 2, count = 0; count !== attempts.length; value += 2) {
      assert.ok(pauseMs < 60_000, 'the others waited for the resting partition')
      if (value > 2) pauseMs *= 2
      count = attempts.length
      await publish(publisher, topic, 1, value, value + 1)
      await eventually('the others', () => seen.length === value + 1)
    }

    const count = attempts.length
    isReady = true
    await eventually('the next attempt', () => attempts.length === count + 1)
    const [last = 0, next = 0] = attempts.slice(-2)
    assert.ok(next - last >= 2_490, `it rested for ${next - last} ms`)
  })

  test('K8 survives whatever deliver throws, and delivers the batch again', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 2)
    const thrown: unknown[] = [new TypeError('not a function'), new RangeError('out of range')]
    const seen: string[] = []

    await using _subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      deliver: (batch) => {
        if (thrown.length > 0) throw thrown.shift()
        return noting(seen)(batch)
      },
    })

    await eventually('both', () => seen.length === 2)
    assert.deepEqual(seen, ['1', '2'])
  })

  test('is failing for as long as deliver rejects, and tells where and with what kind of error', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 1, 1, 2)
    const seen: string[] = []
    let isBroken = true

    await using subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      deliver: async (batch) => {
        if (isBroken) throw new RangeError('a name of a customer')
        return await noting(seen)(batch)
      },
    })
    await eventually('the failure', () => subscription.status().phase === 'failing')
    assert.equal(subscription.status().reason, `${topic}, partition 1 cannot be delivered: RangeError`)
    isBroken = false
    await eventually('both', () => seen.length === 2)

    await eventually('the end of the failure', () => subscription.status().phase === 'running')
    assert.equal(subscription.status().reason, null)
  })

  test('tells how far each partition is', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 2, 1, 7)
    const seen: string[] = []

    await using subscription = begin(broker, { groupId: unique('group'), topics: [topic], deliver: noting(seen) })
    const progress = () => subscription.status().partitions.find(({ partition }) => partition === 2)

    await eventually('the progress', () => progress()?.nextOffset === 7n)
    assert.equal(progress()?.endOffset, 7n)
    assert.equal(subscription.status().reason, null)
  })
}
