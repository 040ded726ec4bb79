/** The in-memory broker fails as it is told to, and knows repeats as Kafka does. */
import { expect, test } from '@jest/globals'
import type { Clock } from '../../../src/messaging/lifecycle/clock.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import { PartitionLog } from '../../../src/messaging/testing/partition-log.ts'
import type { RecordBatch } from '../../../src/messaging/transport.ts'

const signal = new AbortController().signal

test('stores a batch once whose answers are lost, and answers its repeat with the same offset', async () => {
  const broker = openBroker()
  await broker.publish(batchOf('warm'), { signal })

  broker.faults.loseAnswers(3)
  const receipt = await broker.publish(batchOf('lost'), { signal })

  expect(receipt).toEqual({ baseOffset: 2n })
  expect(valuesIn(broker)).toEqual(['warm-0', 'warm-1', 'lost-0', 'lost-1'])
})

test('tells that a batch given up is of unknown outcome, and takes the next one of its size for a new one', async () => {
  const broker = openBroker()
  const publisher = broker.createPublisher({ deliveryTimeoutMs: 0 })

  broker.faults.loseAnswers(1)
  await expect(publisher.publish(batchOf('unknown'), { signal })).rejects.toMatchObject({
    kind: 'outage',
    outcome: 'unknown',
  })
  await publisher.publish(batchOf('next'), { signal })

  expect(valuesIn(broker)).toEqual(['unknown-0', 'unknown-1', 'next-0', 'next-1'])
})

test('repeats a lost request until it arrives', async () => {
  const broker = openBroker()

  broker.faults.loseRequests(4)
  await broker.publish(batchOf('late'), { signal })

  expect(valuesIn(broker)).toEqual(['late-0', 'late-1'])
})

test('keeps an outage to its partition, and lasts for as long as the rule', async () => {
  const broker = openBroker()
  const publisher = broker.createPublisher({ deliveryTimeoutMs: 500 })

  const end = broker.faults.outage({ topic: 'orders', partition: 0 })
  await expect(publisher.publish(batchOf('x'), { signal })).rejects.toMatchObject({
    kind: 'outage',
    outcome: 'refused',
  })
  await publisher.publish({ ...batchOf('y'), partition: 1 }, { signal })
  await publisher.ping()
  end()
  await publisher.publish(batchOf('z'), { signal })

  expect(valuesIn(broker)).toEqual(['z-0', 'z-1', 'y-0', 'y-1'])
})

test('holds requests for as long as it is told, in its scope alone, and carries them out afterwards', async () => {
  const broker = openBroker()
  const publisher = broker.createPublisher()

  const hold = broker.faults.hold({ topic: 'orders', partition: 0 })
  const held = publisher.publish(batchOf('held'), { signal })
  await hold.met
  await publisher.publish({ ...batchOf('other'), partition: 1 }, { signal })
  expect(valuesIn(broker)).toEqual(['other-0', 'other-1'])
  hold.release()
  await held

  expect(valuesIn(broker)).toEqual(['held-0', 'held-1', 'other-0', 'other-1'])
})

test('lets go what it holds when every fault is ended, and when the caller gives up', async () => {
  const broker = openBroker()
  const [one, two] = [broker.createPublisher(), broker.createPublisher()]
  const giveUp = new AbortController()

  const { met } = broker.faults.hold()
  const sends = [
    one.publish(batchOf('cleared'), { signal }),
    two.publish({ ...batchOf('given up'), partition: 1 }, { signal: giveUp.signal }),
  ]
  await met
  giveUp.abort()
  await sends[1]
  expect(valuesIn(broker)).toEqual(['given up-0', 'given up-1'])
  broker.faults.clear()

  await sends[0]
})

test('answers no ping while everything is away', async () => {
  const broker = openBroker()

  const end = broker.faults.outage()
  await expect(broker.ping()).rejects.toMatchObject({ kind: 'outage' })
  end()

  await broker.ping()
})

test('refuses a batch for one of its records, and a topic that is forbidden', async () => {
  const broker = openBroker()

  broker.faults.refuseRecords(({ value }) => value === 'bad-1')
  await expect(broker.publish(batchOf('bad'), { signal })).rejects.toMatchObject({ kind: 'record', outcome: 'refused' })
  await broker.publish(batchOf('good'), { signal })
  broker.faults.forbid('orders')
  await expect(broker.publish(batchOf('late'), { signal })).rejects.toMatchObject({
    kind: 'destination',
    outcome: 'refused',
  })

  expect(valuesIn(broker)).toEqual(['good-0', 'good-1'])
})

test('knows a repeat by its numbers among the last five batches, never by its content', () => {
  const log = new PartitionLog('orders', 0)
  const append = (producerId: number, sequence: number, name: string) =>
    log.append(batchOf(name).records, { producerId, sequence }, new Date(0))

  for (const [at, name] of ['a', 'b', 'c', 'd', 'e', 'f'].entries()) append(1, at * 2, name)

  expect(append(1, 2, 'other content')).toEqual({ kind: 'duplicate', baseOffset: 2n })
  expect(append(1, 0, 'a')).toEqual({ kind: 'out of order' })
  expect(append(1, 14, 'a gap')).toEqual({ kind: 'out of order' })
  expect(append(2, 0, 'f')).toMatchObject({ kind: 'stored', baseOffset: 12n })
})

test('hands each record out once, in order of arrival, and waits for those to come', async () => {
  const broker = openBroker()
  const three = broker.receive(3)

  await broker.publish(batchOf('one'), { signal })
  await broker.publish({ ...batchOf('two'), partition: 1 }, { signal })

  expect((await three).map(({ value }) => value?.toString())).toEqual(['one-0', 'one-1', 'two-0'])
  expect((await broker.receive(1)).map(({ id, type }) => [id, type])).toEqual([['two-1', 'OrderPlaced']])
})

/** Virtual time: a pause passes at once, and moves the clock. */
function openBroker(): InMemoryBroker {
  let now = 0
  const clock: Clock = {
    now: () => now,
    random: () => 0.5,
    pause: async (ms) => {
      now += ms
    },
  }
  return new InMemoryBroker({ clock, topics: { orders: 2 } })
}

function batchOf(name: string): RecordBatch {
  const records = [0, 1].map((n) => {
    const value = `${name}-${n}`
    return { key: 'k', value, headers: { event_id: value, event_type: 'OrderPlaced' } }
  })
  return { topic: 'orders', partition: 0, records }
}

function valuesIn(broker: InMemoryBroker): (string | undefined)[] {
  return broker.records('orders').map(({ value }) => value?.toString())
}
