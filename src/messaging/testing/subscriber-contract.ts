/** What every subscriber keeps: the promises of the port, as tests. */
import assert from 'node:assert/strict'
import type {
  ActiveSubscription,
  BatchOutcome,
  IncomingBatch,
  Publisher,
  StartOffset,
  Subscription,
  TopicPartition,
} from '../transport.ts'
import { type ContractBroker, type ContractHarness, eventually } from './contract-harness.ts'

const never = new AbortController().signal

/** Registers the tests of the subscriber's contract. */
export function subscriberContract({ test, open, unique }: ContractHarness): void {
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

  test('commits what is finished, never more, and goes on from there', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 5)
    const groupId = unique('group')
    const where = { topic, partition: 0 }

    const stuck = Promise.withResolvers<void>()
    let delivered = 0
    const first = begin(broker, {
      groupId,
      topics: [topic],
      deliver: async (batch) => {
        delivered += 1
        const firstOffset = batch.records[0]?.offset ?? 0n
        if (firstOffset >= 3n) {
          stuck.resolve()
          await aborted(batch.signal)
          return { nextOffset: firstOffset, pauseMs: 0 }
        }
        return { nextOffset: firstOffset + 1n, pauseMs: 0 }
      },
    })
    await stuck.promise
    await eventually('the commit', async () => (await broker.committed(groupId, where)) === 3n)
    await first.stop()
    assert.equal(await broker.committed(groupId, where), 3n)
    assert.equal(delivered, 4)

    const seen: string[] = []
    await using _second = begin(broker, {
      groupId,
      topics: [topic],
      startOffset: async () => 100n,
      deliver: noting(seen),
    })
    await eventually('the rest', () => seen.length === 2)
    assert.deepEqual(seen, ['4', '5'])
  })

  test('begins at the lower of what the application and the group remember', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 6)
    const groupId = unique('group')
    const where = { topic, partition: 0 }

    const runFrom = async (startOffset: StartOffset, until: number): Promise<string[]> => {
      const seen: string[] = []
      const subscription = begin(broker, {
        groupId,
        topics: [topic],
        startOffset: async () => startOffset,
        deliver: noting(seen),
      })
      await eventually(`${until} from ${startOffset}`, () => seen.length === until)
      await eventually('the commit', async () => (await broker.committed(groupId, where)) === 6n)
      await subscription.stop()
      return seen
    }

    assert.deepEqual(await runFrom(2n, 4), ['3', '4', '5', '6'])
    assert.deepEqual(await runFrom(4n, 2), ['5', '6'])
    assert.deepEqual(await runFrom('earliest', 6), ['1', '2', '3', '4', '5', '6'])
  })

  test('takes a remembered offset beyond the end for a topic made anew', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 2)
    const seen: string[] = []

    await using _subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      startOffset: async () => 50n,
      deliver: noting(seen),
    })

    await eventually('both', () => seen.length === 2)
  })

  test('waits until the application can tell where to begin', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 1)
    const seen: string[] = []
    let down = true

    await using subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      startOffset: async () => {
        if (down) throw new Error('the database is away')
        return 'earliest'
      },
      deliver: noting(seen),
    })
    await eventually('the reason', () => subscription.status().reason?.includes('the database is away') ?? false)
    assert.equal(subscription.status().phase, 'failing')
    assert.deepEqual(seen, [])
    down = false

    await eventually('the record', () => seen.length === 1)
    await eventually('running', () => subscription.status().phase === 'running')
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

    await using _subscription = begin(broker, {
      groupId: unique('group'),
      topics: [topic],
      deliver: async (batch) => {
        if (batch.partition !== 0) return await noting(seen)(batch)
        attempts.push(performance.now())
        const first = batch.records[0]?.offset ?? 0n
        return attempts.length < 2 ? { nextOffset: first, pauseMs: 2_500 } : all(batch)
      },
    })
    await eventually('the first attempt', () => attempts.length === 1)
    await publish(publisher, topic, 1, 2, 3)
    await eventually('the others', () => seen.length === 3)
    assert.equal(attempts.length, 1, 'the others waited for the resting partition')

    await eventually('the second attempt', () => attempts.length === 2)
    const [first = 0, second = 0] = attempts
    assert.ok(second - first >= 2_490, `it rested for ${second - first} ms`)
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

  test('lets the batch in hand end when stopped, and keeps what it finished', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 9)
    const groupId = unique('group')
    const begun = Promise.withResolvers<void>()

    const subscription = begin(broker, {
      groupId,
      topics: [topic],
      deliver: async (batch) => {
        begun.resolve()
        await aborted(batch.signal)
        return { nextOffset: (batch.records[0]?.offset ?? 0n) + 4n, pauseMs: 0 }
      },
    })
    await begun.promise
    await Promise.all([subscription.stop(), subscription.stop()])

    await subscription.done
    assert.equal(await broker.committed(groupId, { topic, partition: 0 }), 4n)
    assert.equal(subscription.status().phase, 'ended')
  })

  test('may be stopped at any moment, the first one included', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 3)
    const groupId = unique('group')

    for (const ms of [0, 5, 50, 200]) {
      const subscription = begin(broker, { groupId, topics: [topic], deliver: async (batch) => all(batch) })
      await new Promise((resolve) => {
        setTimeout(resolve, ms)
      })
      await Promise.all([subscription.stop(), subscription.stop()])
      await subscription.done
      assert.equal(subscription.status().phase, 'ended')
    }

    const seen: string[] = []
    await using _last = begin(broker, { groupId, topics: [topic], deliver: noting(seen) })
    await eventually('all three', () => seen.length >= 3, 30_000)
  })

  test('shares a topic among members, and asks anew where to begin after each assignment', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    for (const partition of [0, 1, 2]) await publish(publisher, topic, partition, 1, 2)
    const groupId = unique('group')
    const member = () => {
      const seen: string[] = []
      const asked: TopicPartition[] = []
      const subscription = begin(broker, {
        groupId,
        topics: [topic],
        startOffset: async (where) => {
          asked.push(where)
          return 1_000n
        },
        deliver: async (batch) => {
          seen.push(...batch.records.map(({ offset }) => `${batch.partition}/${offset}`))
          return all(batch)
        },
      })
      return { seen, asked, subscription }
    }
    const places = (...subscriptions: ActiveSubscription[]) =>
      subscriptions.flatMap((one) => one.status().partitions.map(({ partition }) => partition)).sort()

    const one = member()
    await eventually('all six', () => one.seen.length === 6)
    const two = member()
    await eventually('a shared topic', () => {
      const [of1, of2] = [places(one.subscription), places(two.subscription)]
      return of1.length > 0 && of2.length > 0 && String(places(one.subscription, two.subscription)) === '0,1,2'
    })
    assert.ok(two.asked.length > 0)

    const askedBefore = one.asked.length
    await two.subscription.stop()
    await eventually('everything back', () => places(one.subscription).length === 3)
    await eventually('asked again', () => one.asked.length >= askedBefore + 3)
    await publish(publisher, topic, 0, 3, 3)
    await publish(publisher, topic, 1, 3, 3)
    await publish(publisher, topic, 2, 3, 3)
    await eventually('the third of each', () => ['0/2', '1/2', '2/2'].every((place) => one.seen.includes(place)))
    await one.subscription.stop()
  })

  test('waits for a topic that does not exist, and tells so', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const late = unique('late')
    await publish(publisher, topic, 0, 1, 1)
    const seen: string[] = []

    await using subscription = begin(broker, { groupId: unique('group'), topics: [topic, late], deliver: noting(seen) })
    await eventually('the topic that is there', () => seen.length === 1)
    assert.equal(subscription.status().phase, 'failing')
    assert.ok(subscription.status().reason?.includes(late))
    await publisher.createTopic(late, { partitionCount: 1, replicationFactor: null })
    await publish(publisher, late, 0, 2, 2)

    await eventually('the late topic', () => seen.includes('2'))
    await eventually('running', () => subscription.status().phase === 'running')
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

async function withTopic(
  broker: ContractBroker,
  unique: (name: string) => string,
): Promise<{ publisher: Publisher; topic: string }> {
  const publisher = broker.createPublisher()
  const topic = unique('contract')
  await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  return { publisher, topic }
}

function begin(
  broker: ContractBroker,
  subscription: Omit<Subscription, 'startOffset'> & Partial<Pick<Subscription, 'startOffset'>>,
): ActiveSubscription {
  // By itself the lower of both is the application's: it remembers nothing.
  return broker.createSubscriber().subscribe({ startOffset: async () => 'earliest', ...subscription })
}

async function publish(
  publisher: Publisher,
  topic: string,
  partition: number,
  from: number,
  to: number,
): Promise<void> {
  const values = Array.from({ length: to - from + 1 }, (_, n) => String(from + n))
  const records = values.map((value) => ({ key: `key-${partition}`, value, headers: {} }))
  await publisher.publish({ topic, partition, records }, { signal: never })
}

function all(batch: IncomingBatch): BatchOutcome {
  return { nextOffset: (batch.records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
}

function noting(seen: string[]): Subscription['deliver'] {
  return async (batch) => {
    seen.push(...batch.records.map(({ value }) => value?.toString() ?? 'null'))
    return all(batch)
  }
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await promise
}
