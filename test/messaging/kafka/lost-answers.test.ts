/** Hundreds of lost answers and requests, on three partitions at once, with a seed: nothing lost, nothing out of order. */
import { expect, test } from '@jest/globals'
import { uniqueTopic } from '../../support/kafka.ts'
import { api } from '../../support/proxy/frames.ts'
import type { Verdict } from '../../support/proxy/kafka-proxy.ts'
import { startProxiedKafka } from '../../support/proxy/proxied-kafka.ts'
import { batchOf, firsts, never, openPublisher, untilStored, valuesIn, valuesOf } from './publishing.ts'
import { createWitness } from './witness.ts'

/** How many answers are lost before a run may end. */
const LOST = 200

test.each([
  ['that repeats for as long as it takes', 60_000],
  ['that gives a batch up after one try', 40],
])(
  'PC-01 K1 K2 loses and reorders nothing under 200 lost answers, with a publisher %s',
  async (_, deliveryTimeoutMs) => {
    await using cluster = await startProxiedKafka()
    await using witness = await createWitness(cluster.brokers)
    await using publisher = openPublisher({ brokers: cluster.brokers, deliveryTimeoutMs })
    const topic = uniqueTopic('lost-answers')
    await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
    const partitions = [0, 1, 2]
    for (const partition of partitions)
      await untilStored(() => publisher.publish(batchOf(topic, partition, 'warm', 5), { signal: never }))

    const random = seeded(20261129)
    let lost = 0
    const end = cluster.proxies[0]?.rule(({ apiKey }): Verdict => {
      const chance = random()
      if (apiKey !== api.produce || chance > 0.4) return 'pass'
      lost += 1
      return chance < 0.3 ? 'reset for answer' : 'reset'
    })

    const acknowledged = await Promise.all(
      partitions.map(async (partition) => {
        const values = valuesOf(batchOf(topic, partition, 'warm', 5))
        for (let n = 0; lost < LOST; n += 1) {
          // Alike in size, so that their numbers could be taken for one another's.
          const batch = batchOf(topic, partition, `batch${n}`, 5)
          await untilStored(() => publisher.publish(batch, { signal: never }))
          values.push(...valuesOf(batch))
        }
        return values
      }),
    )
    end?.()
    await publisher.close()

    expect(lost).toBeGreaterThanOrEqual(LOST)
    for (const partition of partitions) {
      const values = await valuesIn(witness, topic, partition)
      expect(firsts(values)).toEqual(acknowledged[partition])
      // Only who gives up writes twice.
      if (deliveryTimeoutMs > 1_000) expect(values).toEqual(acknowledged[partition])
    }
  },
)

/** mulberry32 */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
