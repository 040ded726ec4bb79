import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { Chores } from '../../../src/messaging/relay/chores.ts'
import { Doubts } from '../../../src/messaging/relay/doubts.ts'
import { Hand } from '../../../src/messaging/relay/hand.ts'
import { HeldKeys } from '../../../src/messaging/relay/held-keys.ts'
import { Holding } from '../../../src/messaging/relay/holding.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { plainEvent } from '../../support/events.ts'
import { TOPIC } from './setting.ts'

/** A worker's holding over an outbox in memory with one event, whose database fails the calls named in `failing`. */
async function createHolding() {
  const failing = new Set<string>()
  const outbox = new InMemoryOutbox({
    clock: systemClock,
    hash: murmur2,
    topicFor: defaultTopicFor(''),
    around: async (call, apply) => {
      if (failing.has(call)) throw new Error('the database is away')
      return apply()
    },
  })
  const [event] = outbox.append([plainEvent('OrderPlaced')])
  if (event === undefined) throw new Error('Nothing was appended')
  const owner = randomUUID()
  const hand = new Hand()
  const heldKeys = new HeldKeys({ maxAttempts: 1, longestSkipMs: 60_000, clock: systemClock })
  const chores = new Chores({
    clock: systemClock,
    logger: silentLogger,
    cancelled: new AbortController().signal,
    onDone: () => {},
  })
  const holding = new Holding({
    source: outbox,
    hand,
    heldKeys,
    doubts: new Doubts({ clock: systemClock, deliveryTimeoutMs: 30_000, leaseMs: 5_000 }),
    chores,
    logger: silentLogger,
    onFenced: () => {},
    onChange: () => {},
  })
  return {
    outbox,
    failing,
    event,
    hand,
    heldKeys,
    chores,
    holding,
    /** Gets the lane, as at the relay's renewal. */
    async own() {
      await outbox.renew([owner], 60_000)
      hand.assign(owner, await outbox.claim(owner, [event.lane]))
    },
    /** Loses the lane to another worker, which publishes what is there and gives it back. */
    async loseTo(successor: string) {
      outbox.expire(owner)
      await outbox.renew([successor], 60_000)
      const leases = await outbox.claim(successor, [event.lane])
      await outbox.settle({ owner: successor, leases }, [event])
      await outbox.release(successor, leases)
      hand.assign(owner, [])
    },
  }
}

test('holds nothing on account of a refusal under a lease that is gone, also where the lane has come back', async () => {
  const { outbox, failing, event, chores, holding, own, loseTo } = await createHolding()
  await own()
  failing.add('hold')
  holding.hold({ topic: TOPIC, partition: 0 }, event, { reason: 'INVALID_RECORD', park: false })
  await loseTo(randomUUID())
  await own()
  failing.clear()
  await chores.idle()

  expect(outbox.keys).toEqual([])
})

test('takes no answer about held keys that was asked for under a lease that is gone', async () => {
  const { outbox, failing, event, hand, heldKeys, chores, holding, own, loseTo } = await createHolding()
  await own()
  const key = { lane: event.lane, topic: TOPIC, aggregateType: 'order', aggregateId: 'order-1' }
  const request = { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 1_000, park: true }
  await outbox.hold(hand.ownership([event.lane]), key, request)
  holding.learn([event.lane])
  hand.lose(event.lane)
  await loseTo(randomUUID())
  await chores.idle()

  expect(heldKeys.count).toBe(0)
  failing.clear()
})
