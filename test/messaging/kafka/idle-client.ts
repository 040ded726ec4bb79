/** A process with a publisher and a subscriber that have nothing to do. Prints how often they had something to do all the same. */
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { createKafkaPublisher, createKafkaSubscriber } from '../../../src/messaging/kafka/index.ts'

const [broker = '', topic = '', idleMs = '5000'] = process.argv.slice(2)
const signal = new AbortController().signal
const options = { brokers: [broker], clientId: 'idle' }
const warnings: string[] = []
process.on('warning', ({ name }) => warnings.push(name))

const publisher = createKafkaPublisher(options)
const { partitionCount } = await publisher.createTopic(topic, { partitionCount: 8, replicationFactor: null })
const partitions = Array.from({ length: partitionCount }, (_, partition) => partition)
const records = [{ key: 'k', value: 'v', headers: {} }]
await Promise.all(partitions.map((partition) => publisher.publish({ topic, partition, records }, { signal })))

let delivered = 0
const all = Promise.withResolvers<void>()
const subscription = createKafkaSubscriber(options).subscribe({
  groupId: topic,
  topics: [topic],
  startOffset: async () => 'earliest',
  async deliver(batch) {
    delivered += batch.records.length
    if (delivered === partitionCount) all.resolve()
    return { nextOffset: (batch.records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
  },
})
await all.promise

const before = turnCount()
const from = performance.now()
await sleep(Number(idleMs))
const turnsPerSecond = ((turnCount() - before) / (performance.now() - from)) * 1_000
await subscription.stop()
await publisher.close()
process.stdout.write(JSON.stringify({ turnsPerSecond, warnings }))

/** How often the event loop has gone round. */
function turnCount(): number {
  return performance.nodeTiming.uvMetricsInfo.loopCount
}
