import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { Hand } from '../../../src/messaging/relay/hand.ts'

function createHand(lanes: readonly number[]): Hand {
  const hand = new Hand()
  const grants = lanes.map((lane) => ({ lane, token: 1n, crashes: 0, horizon: 0n, doubt: 0n }))
  hand.assign(randomUUID(), grants)
  hand.open(grants)
  return hand
}

const lanesOf = (plan: readonly { readonly lane: number }[]) => plan.map(({ lane }) => lane)

test('lanes that cannot be read all at once have their turns', () => {
  const hand = createHand([0, 1, 2, 3, 4])
  const turn = () => {
    const lanes = lanesOf(hand.plan(0, { events: 100, lanes: 2 }))
    // Each of them is worth another read at once.
    hand.stir(lanes)
    return lanes
  }

  expect([turn(), turn(), turn()]).toEqual([
    [0, 1],
    [2, 3],
    [4, 0],
  ])
})

test('a quiet lane is not read for new events until its time, and at once when its destination is back', () => {
  const hand = createHand([0, 1])
  const all = { events: 100, lanes: 64 }
  hand.plan(0, all)
  hand.quiet([0], 1_000)
  hand.stir([0, 1])

  expect(lanesOf(hand.plan(500, all))).toEqual([1])
  expect(hand.wantsRead(500)).toBe(false)
  expect(hand.wantsRead(1_000)).toBe(true)
  hand.touch([0])
  expect(lanesOf(hand.plan(500, all))).toEqual([0])
})

test('a lane that was cut short by its bytes is read again, in whatever script they are', () => {
  const hand = createHand([0])
  const [plan] = [hand.plan(0, { events: 100, lanes: 64 })]
  const event = {
    id: randomUUID(),
    type: 'Happened',
    aggregate: { type: 'order', id: 'a' },
    version: null,
    payload: JSON.stringify('漢'.repeat(1_000)),
    occurredAt: new Date(),
    headers: {},
    trace: null,
    seq: 1n,
    lane: 0,
    keyHash: 0,
    createdAt: new Date(),
    topic: null,
  }
  hand.learn(plan, [event], 3_000, 1_000)

  expect(hand.wantsRead(0)).toBe(true)
})
