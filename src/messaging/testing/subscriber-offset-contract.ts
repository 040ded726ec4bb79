/** Where a subscriber begins, and what it commits. */
import assert from 'node:assert/strict'
import type { StartOffset } from '../transport.ts'
import { type ContractHarness, eventually } from './contract-harness.ts'
import { aborted, begin, noting, publish, withTopic } from './contract-subscription.ts'

/** Registers the tests of offsets. */
export function offsetContract({ test, open, unique }: ContractHarness): void {
  test('commits what is finished, never more, and goes on from there', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 5)
    const groupId = unique('group')
    const where = { topic, partition: 0 }

    const stuck = Promise.withResolvers<void>()
    let delivered = 0
    await using first = begin(broker, {
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

  test('begins at the lower of what the application and the group remember, and at the start where the group remembers nothing', async () => {
    await using broker = await open()
    const { publisher, topic } = await withTopic(broker, unique)
    await publish(publisher, topic, 0, 1, 6)
    const groupId = unique('group')
    const where = { topic, partition: 0 }

    const runFrom = async (startOffset: StartOffset, until: number): Promise<string[]> => {
      const seen: string[] = []
      await using subscription = begin(broker, {
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

    // The topic may have been made anew, and have grown past what the application remembers of the one before.
    assert.deepEqual(await runFrom(2n, 6), ['1', '2', '3', '4', '5', '6'])
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
    await eventually('the reason', () => {
      const { phase, reason } = subscription.status()
      return phase === 'failing' && (reason?.includes('the database is away') ?? false)
    })
    assert.deepEqual(seen, [])
    down = false

    await eventually('the record', () => seen.length === 1)
    await eventually('running', () => subscription.status().phase === 'running')
  })
}
