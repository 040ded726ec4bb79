/** Sends that come late, by relays that froze or died: what an operator has skipped meanwhile they do not bring. In virtual time. */
import { expect, test } from '@jest/globals'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import type { OutgoingRecord } from '../../../src/messaging/transport.ts'
import { resetOwners, startSimulatedRelay, topicFor } from '../../support/simulation/simulated-relays.ts'
import { VirtualTime } from '../../support/simulation/virtual-time.ts'
import { TOPIC } from './setting.ts'

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

test('a relay that was frozen sends nothing of what it had read when others have its lanes', async () => {
  const scene = createScene()
  const { broker, time } = scene
  const frozen = await scene.start()
  scene.append('First', 'other')
  frozen.wake(scene.lanes)
  await time.passUntil(() => broker.records(TOPIC).length === 1, MINUTE_MS)
  const read = scene.onceRead(() => frozen.process.freeze())
  scene.append('Second', 'bad')
  frozen.wake(scene.lanes)
  await time.passUntil(() => read.isOver, MINUTE_MS)
  const allow = broker.faults.refuseRecords(isOfBad)
  await scene.start()
  await scene.skipParked()
  allow()

  frozen.process.thaw()
  await time.passUntil(() => false, 10_000)
  expect(scene.outbox.skipped.map(({ type }) => type)).toEqual(['Second'])
  expect(scene.types('bad')).toEqual([])
})

test('what a relay had sent when it died arrives before the event is skipped, and then counts as published', async () => {
  const scene = createScene({ deliveryTimeoutMs: 20_000 })
  const { broker, time } = scene
  const dead = await scene.start()
  let requests = 0
  broker.faults.add(({ records }) => {
    if (!records.some(isOfBad)) return null
    requests += 1
    return requests === 1
      ? { kind: 'delayed', ms: 20_000 }
      : { kind: 'refused', failure: 'record', reason: 'INVALID_RECORD' }
  })
  scene.append('Sent', 'bad')
  dead.wake(scene.lanes)
  await time.passUntil(() => requests === 1, MINUTE_MS)
  dead.process.kill()
  await scene.start()
  await scene.skipParked()

  await time.passUntil(() => false, MINUTE_MS)
  expect(scene.outbox.skipped).toEqual([])
  expect(scene.outbox.marks.map(({ event }) => event.type)).toEqual(['Sent'])
  expect(scene.types('bad')).toEqual(['Sent'])
})

test('a skip outlasts what is on its way, but not the day by which the clock of the database was set back', async () => {
  const scene = createScene({ deliveryTimeoutMs: 20_000 })
  const { broker, outbox, time } = scene
  scene.setDatabaseClock(DAY_MS)
  const dead = await scene.start()
  let requests = 0
  broker.faults.add(({ records }) => {
    if (!records.some(isOfBad)) return null
    requests += 1
    return requests === 1 ? { kind: 'request lost' } : { kind: 'refused', failure: 'record', reason: 'INVALID_RECORD' }
  })
  scene.append('Sent', 'bad')
  dead.wake(scene.lanes)
  await time.passUntil(() => requests === 1, MINUTE_MS)
  dead.process.kill()
  const relay = await scene.start()
  await time.passUntil(() => outbox.keys.some(({ state }) => state === 'parked'), 5 * MINUTE_MS)
  const parkedAt = time.now()
  scene.setDatabaseClock(0)
  for (const key of outbox.keys) outbox.request(key, 'skip')
  const look = () => relay.wake(scene.lanes)
  for (let minute = 0; minute < 20 && outbox.skipped.length === 0; minute += 1) {
    look()
    await time.passUntil(() => outbox.skipped.length > 0, MINUTE_MS)
  }

  expect(outbox.skipped.map(({ type }) => type)).toEqual(['Sent'])
  expect(time.now() - parkedAt).toBeGreaterThan(55_000)
})

function createScene({ deliveryTimeoutMs = 0 } = {}) {
  resetOwners()
  const time = new VirtualTime(1)
  let databaseAheadMs = 0
  let onRead: ((found: unknown) => void) | null = null
  const outbox = new InMemoryOutbox({
    clock: {
      now: () => time.now() + databaseAheadMs,
      pause: (ms, signal) => time.pause(ms, signal),
      random: () => time.random(),
    },
    hash: murmur2,
    topicFor,
    around: async (call, apply) => {
      const answer = apply()
      if (call === 'read') onRead?.(answer)
      return answer
    },
  })
  const broker = new InMemoryBroker({ clock: time, now: () => new Date(time.now()), topics: { [TOPIC]: 1 } })
  const around = {
    time,
    outbox,
    broker,
    partitionCount: 1,
    batchSize: 1,
    maxAttempts: 1,
    deliveryTimeoutMs,
    databaseLatencyMs: 4,
    databaseFault: () => 'none' as const,
    onUnknownOutcome: () => {},
    onDefect: (problem: string) => {
      throw new Error(problem)
    },
  }
  return {
    time,
    outbox,
    broker,
    lanes: outbox.lanes.map(({ lane }) => lane),
    /** Sets by how much the database's clock is ahead of all others. */
    setDatabaseClock(aheadMs: number) {
      databaseAheadMs = aheadMs
    },
    /** Starts a relay; resolves once it lives. */
    async start() {
      const before = outbox.liveOwners
      const relay = startSimulatedRelay(around)
      await time.passUntil(() => outbox.liveOwners.some((owner) => !before.includes(owner)), MINUTE_MS)
      await time.passUntil(() => outbox.lanes.every(({ owner }) => owner !== null), MINUTE_MS)
      return relay
    },
    /** Does something once the database has read at least one event, before the answer arrives. */
    onceRead(act: () => void): { readonly isOver: boolean } {
      const state = { isOver: false }
      onRead = (found) => {
        if (!Array.isArray(found) || found.length === 0) return
        onRead = null
        state.isOver = true
        act()
      }
      return state
    },
    append(type: string, id: string): OutboxEvent | undefined {
      const [event] = outbox.append([
        {
          id: `${type}-${id}`,
          type,
          aggregate: { type: 'order', id },
          version: null,
          payload: '{}',
          occurredAt: new Date(time.now()),
          headers: {},
          trace: null,
          topic: null,
        },
      ])
      return event
    },
    /** Waits until a key is parked, asks for its skip, and waits until that is done. */
    async skipParked() {
      await time.passUntil(() => outbox.keys.some(({ state }) => state === 'parked'), 5 * MINUTE_MS)
      for (const key of outbox.keys) outbox.request(key, 'skip')
      await time.passUntil(() => outbox.keys.length === 0, 5 * MINUTE_MS)
    },
    types: (key: string) =>
      broker.records(TOPIC).flatMap((record) => (record.key === key ? [record.headers.event_type] : [])),
  }
}

function isOfBad({ key }: OutgoingRecord): boolean {
  return key === 'bad'
}
