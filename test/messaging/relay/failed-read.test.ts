import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { PublishError } from '../../../src/messaging/errors.ts'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { type Around, InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { eventually, InMemoryBroker } from '../../../src/messaging/testing/index.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'
import { plainEvent } from '../../support/events.ts'
import { startLoneWorker } from '../../support/relay/lone-worker.ts'
import { TOPIC } from './setting.ts'

test('an event read while the one before it failed waits for it, however long the read took', async () => {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const read = createGate()
  const send = createGate()
  const outbox = createOutbox({
    around: async (call, apply) => {
      const answer = apply()
      // The database has answered; the answer is on its way.
      if (call === 'read') await read.pass()
      return answer
    },
  })
  let ahead = 0
  const worker = await startLoneWorker(outbox, {
    publisher: failingOnce(broker.createPublisher(), send),
    clock: { ...systemClock, now: () => systemClock.now() + ahead },
  })

  send.close()
  const [first] = outbox.append([plainEvent('First')])
  worker.wake([first?.lane ?? 0])
  await send.reached
  read.close()
  outbox.append([plainEvent('Second')])
  worker.wake([first?.lane ?? 0])
  await read.reached
  send.open()
  await send.failed
  // Its destination has rested, and rests no longer.
  ahead = 10_000
  read.open()
  await broker.receive(2)
  await worker.stop()

  expect(broker.records(TOPIC).map(({ headers }) => headers.event_type)).toEqual(['First', 'Second'])
})

test('an event read under a lease that has ended and come back goes after what was in hand before it', async () => {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const read = createGate()
  const inHand = Promise.withResolvers<void>()
  const outbox = createOutbox({
    around: async (call, apply) => {
      const answer = await apply()
      if (call === 'read') await read.pass()
      if (call === 'read' && JSON.stringify(answer, noBigInt).includes('First')) setImmediate(inHand.resolve)
      return answer
    },
  })
  const worker = await startLoneWorker(outbox, { publisher: broker.createPublisher(), clock: systemClock })
  // What is on its way keeps the next one waiting in the queue.
  const hold = broker.faults.hold({ topic: TOPIC })
  const [before] = outbox.append([plainEvent('Before', 'order-2')])
  worker.wake([before?.lane ?? 0])
  await hold.met
  const [first] = outbox.append([plainEvent('First')])
  worker.wake([first?.lane ?? 0])
  await inHand.promise
  read.close()
  outbox.append([plainEvent('Second')])
  worker.wake([first?.lane ?? 0])
  await read.reached

  await worker.loseAndRegain()
  read.open()
  // The answer that was read before has come and been dealt with.
  await new Promise(setImmediate)
  hold.release()
  await broker.receive(4)
  await worker.stop()

  const types = broker.records(TOPIC).map(({ headers }) => headers.event_type)
  expect(types.filter((type) => type !== 'Before')).toEqual(['First', 'Second'])
})

test('an event read while an adoption began and was given up goes after what was dropped for it', async () => {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const read = createGate()
  const inHand = Promise.withResolvers<void>()
  let lookUps = 0
  const outbox = createOutbox({
    around: async (call, apply) => {
      const answer = await apply()
      if (call === 'recorded' || call === 'record') setImmediate(() => (lookUps += 1))
      if (call === 'read') await read.pass()
      if (call === 'read' && JSON.stringify(answer, noBigInt).includes('First')) setImmediate(inHand.resolve)
      return answer
    },
  })
  const worker = await startLoneWorker(outbox, { publisher: broker.createPublisher(), clock: systemClock })
  // What is on its way keeps the next one waiting in the queue.
  const hold = broker.faults.hold({ topic: TOPIC })
  const [before] = outbox.append([plainEvent('Before')])
  worker.wake([before?.lane ?? 0])
  await hold.met
  outbox.append([plainEvent('First')])
  worker.wake([before?.lane ?? 0])
  await inHand.promise
  read.close()
  outbox.append([plainEvent('Second')])
  worker.wake([before?.lane ?? 0])
  await read.reached

  const topic = { topic: TOPIC, partitionCount: 1 }
  worker.tellTopics([{ ...topic, adoption: randomUUID() }])
  worker.tellTopics([{ ...topic, adoption: null }])
  const known = lookUps
  await eventually('the count is looked up again', () => lookUps > known)
  read.open()
  hold.release()
  await broker.receive(3)
  await worker.stop()

  expect(broker.records(TOPIC).map(({ headers }) => headers.event_type)).toEqual(['Before', 'First', 'Second'])
})

test('an event that a held key has published while a read was under way is not taken from that read', async () => {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const [read, follow] = [createGate(), createGate()]
  const outbox = createOutbox({
    around: async (call, apply) => {
      if (call === 'holdFollowers') await follow.pass()
      const answer = await apply()
      if (call === 'read') await read.pass()
      return answer
    },
  })
  let ahead = 0
  const worker = await startLoneWorker(outbox, {
    publisher: broker.createPublisher(),
    clock: { ...systemClock, now: () => systemClock.now() + ahead },
  })
  const allow = broker.faults.refuseRecords(() => true)
  const [first] = outbox.append([plainEvent('First')])
  const wake = () => worker.wake([first?.lane ?? 0])
  wake()
  await eventually('the key is held', () => outbox.keys.length === 1 && outbox.pendingCount === 0)
  allow()
  const hold = broker.faults.hold({ topic: TOPIC })
  ahead = 10_000
  wake()
  await hold.met
  follow.close()
  outbox.append([plainEvent('Second')])
  wake()
  await follow.reached
  read.close()
  wake()
  await read.reached
  // Now the read has seen it, and then it is held, published, and its key let go.
  follow.open()
  await eventually('it is held', () => outbox.pendingCount === 0)
  hold.release()
  await eventually('the key is let go', () => outbox.keys.length === 0)
  read.open()
  outbox.append([plainEvent('Third')])
  wake()
  await broker.receive(3)
  await worker.stop()

  expect(broker.records(TOPIC).map(({ headers }) => headers.event_type)).toEqual(['First', 'Second', 'Third'])
})

test('what was sent before a refused event is not sent again while it is still to be marked', async () => {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const settle = createGate()
  let held = 0
  const outbox = createOutbox({
    around: async (call, apply) => {
      if (call === 'settle') await settle.pass()
      if (call === 'readHeld') held += 1
      return apply()
    },
  })
  let ahead = 0
  const worker = await startLoneWorker(outbox, {
    publisher: broker.createPublisher(),
    clock: { ...systemClock, now: () => systemClock.now() + ahead },
  })
  const allow = broker.faults.refuseRecords(({ headers }) => headers.event_type === 'Refused')
  settle.close()
  const [sent] = outbox.append([plainEvent('Sent'), plainEvent('Refused')])
  const wake = () => worker.wake([sent?.lane ?? 0])
  wake()
  await settle.reached
  await eventually('the key is held', () => outbox.keys.length === 1 && outbox.pendingCount === 0)
  // Its next attempt is due, and would find the one that is not marked yet.
  for (let rounds = 0; rounds < 5; rounds += 1) {
    ahead += 1_000
    wake()
    await new Promise(setImmediate)
  }
  expect(held).toBe(0)
  settle.open()
  allow()
  await eventually('the key is let go', () => {
    ahead += 100
    wake()
    return outbox.keys.length === 0
  })
  await worker.stop()

  expect(broker.records(TOPIC).map(({ headers }) => headers.event_type)).toEqual(['Sent', 'Refused'])
})

test('what was accepted and could not be marked before the end is in doubt for the next owner', async () => {
  const broker = new InMemoryBroker({ topics: { [TOPIC]: 1 } })
  const settle = createGate()
  const outbox = createOutbox({
    around: async (call, apply) => {
      if (call === 'settle') await settle.pass()
      return apply()
    },
  })
  const worker = await startLoneWorker(outbox, { publisher: broker.createPublisher(), clock: systemClock })
  settle.close()
  const [event] = outbox.append([plainEvent('Sent')])
  worker.wake([event?.lane ?? 0])
  await settle.reached

  await worker.cancel()

  expect(broker.records(TOPIC)).toHaveLength(1)
  expect(outbox.lanes.find(({ lane }) => lane === event?.lane)).toMatchObject({ owner: null, doubt: event?.seq })
  settle.open()
})

function createOutbox({ around }: { around: Around }): InMemoryOutbox {
  return new InMemoryOutbox({ clock: systemClock, hash: murmur2, topicFor: defaultTopicFor(''), around })
}

/** A place that can be closed: whoever comes waits, and is told of. */
function createGate() {
  const reached = Promise.withResolvers<void>()
  const failed = Promise.withResolvers<void>()
  const opened = Promise.withResolvers<void>()
  let closed = false
  return {
    reached: reached.promise,
    failed: failed.promise,
    told: failed.resolve,
    get closed() {
      return closed
    },
    close: () => {
      closed = true
    },
    open: () => {
      closed = false
      opened.resolve()
    },
    async pass(): Promise<void> {
      if (!closed) return
      reached.resolve()
      await opened.promise
    },
  }
}

/** Fails the batch that finds the gate closed, once that is open. */
function failingOnce(publisher: Publisher, gate: ReturnType<typeof createGate>): Publisher {
  return {
    ...publisher,
    publish: async (batch, options) => {
      if (!gate.closed) return await publisher.publish(batch, options)
      await gate.pass()
      // After the relay has dealt with it, which takes turns of the promise queue alone.
      setImmediate(gate.told)
      throw new PublishError(batch, { kind: 'outage', outcome: 'refused', reason: 'LEADER_NOT_AVAILABLE' })
    },
  }
}

function noBigInt(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value
}
