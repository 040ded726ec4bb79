/** Writes of a worker whose lanes are somebody else's: nothing changes, and they are counted. */
import { expect, test } from '@jest/globals'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import { plainEvent } from '../../support/events.ts'
import { startLoneWorker } from '../../support/relay/lone-worker.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'
import { TOPIC } from './setting.ts'

const points = readMetrics()

test('PC-14 the mark of a worker that was robbed of its lane in the middle of a send changes nothing, and is counted', async () => {
  const outbox = new InMemoryOutbox({ clock: systemClock, hash: murmur2, topicFor: defaultTopicFor('') })
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const worker = await startLoneWorker(outbox, { publisher: broker.createPublisher(), clock: systemClock })
  const hold = broker.faults.hold({ topic: TOPIC })
  const [event] = outbox.append([plainEvent('Placed')])
  worker.wake([event?.lane ?? 0])
  await hold.met

  await worker.rob()
  hold.release()
  await eventually('the count', async () => (await points('outbox.relay.fenced.writes'))[0]?.value === 1)
  await worker.stop()

  expect(broker.records(TOPIC)).toHaveLength(1)
  expect(outbox.pendingCount).toBe(1)
})
