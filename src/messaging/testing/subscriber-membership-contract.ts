/** How a subscriber comes, shares, waits and goes. */
import assert from 'node:assert/strict'
import type { ActiveSubscription, TopicPartition } from '../transport.ts'
import { type ContractHarness, eventually } from './contract-harness.ts'
import { aborted, all, begin, noting, publish, withTopic } from './contract-subscription.ts'

/** Registers the tests of membership. */
export function membershipContract({ test, open, unique }: ContractHarness): void {
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
      return { seen, asked, subscription, [Symbol.asyncDispose]: () => subscription.stop() }
    }
    const places = (...subscriptions: ActiveSubscription[]) =>
      subscriptions.flatMap((one) => one.status().partitions.map(({ partition }) => partition)).sort()

    await using one = member()
    await eventually('all six', () => one.seen.length === 6)
    await using two = member()
    await eventually('a shared topic', () => {
      const [of1, of2] = [places(one.subscription), places(two.subscription)]
      return of1.length > 0 && of2.length > 0 && String(places(one.subscription, two.subscription)) === '0,1,2'
    })
    await eventually('the second asked', () => two.asked.length > 0)

    const askedBefore = one.asked.length
    await two.subscription.stop()
    await eventually('everything back', () => places(one.subscription).length === 3)
    await eventually('asked again', () => one.asked.length >= askedBefore + 3)
    await publish(publisher, topic, 0, 3, 3)
    await publish(publisher, topic, 1, 3, 3)
    await publish(publisher, topic, 2, 3, 3)
    await eventually('the third of each', () => ['0/2', '1/2', '2/2'].every((place) => one.seen.includes(place)))
  })

  test('waits for a topic that does not exist, and tells so', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    const late = unique('late')
    await publish(publisher, topic, 0, 1, 1)
    const seen: string[] = []

    await using subscription = begin(broker, { groupId: unique('group'), topics: [topic, late], deliver: noting(seen) })
    await eventually('the topic that is there', () => seen.length === 1)
    await eventually('the one that is not', () => {
      const { phase, reason } = subscription.status()
      return phase === 'failing' && (reason?.includes(late) ?? false)
    })
    await publisher.createTopic(late, { partitionCount: 1, replicationFactor: null })
    await publish(publisher, late, 0, 2, 2)

    await eventually('the late topic', () => seen.includes('2'))
    await eventually('running', () => subscription.status().phase === 'running')
  })

  test('lets the batch in hand end when stopped, and keeps what it finished', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 9)
    const groupId = unique('group')
    const begun = Promise.withResolvers<void>()

    await using subscription = begin(broker, {
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
    await eventually('all three', () => seen.length >= 3)
  })
}
