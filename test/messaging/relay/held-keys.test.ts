/** When the owner of a lane takes up the keys that are held in it. */
import { expect, test } from '@jest/globals'
import { HeldKeys } from '../../../src/messaging/relay/held-keys.ts'
import type { HeldKey } from '../../../src/messaging/source.ts'

const DAY_MS = 86_400_000
const LONGEST_MS = 60_000

function createHeldKeys() {
  const time = { now: 0 }
  const clock = { now: () => time.now, pause: async () => {}, random: () => 0 }
  return { time, heldKeys: new HeldKeys({ maxAttempts: 10, longestSkipMs: LONGEST_MS, clock }) }
}

function parked(dueInMs: number, request: HeldKey['request'] = 'skip'): HeldKey {
  const key = { lane: 1, topic: 'order.events', aggregateType: 'order', aggregateId: 'a' }
  return { ...key, state: 'parked', attempts: 10, dueInMs, reason: 'INVALID_RECORD', request }
}

test('a skip waits for its time', () => {
  const { time, heldKeys } = createHeldKeys()
  heldKeys.load([parked(LONGEST_MS)])

  time.now = LONGEST_MS - 1
  expect(heldKeys.takeDue(1)).toEqual([])
  time.now = LONGEST_MS
  expect(heldKeys.takeDue(1)).toMatchObject([{ task: 'skip' }])
})

test('a skip whose time lies further ahead than any waits for the longest, however often its key is read', () => {
  const { time, heldKeys } = createHeldKeys()
  heldKeys.load([parked(DAY_MS, null)])
  for (time.now = 1_000; time.now < LONGEST_MS; time.now += 1_000) {
    heldKeys.load([parked(DAY_MS - time.now)])
    expect(heldKeys.takeDue(1)).toEqual([])
  }

  heldKeys.load([parked(DAY_MS - time.now)])
  expect(heldKeys.takeDue(1)).toMatchObject([{ task: 'skip' }])
})

test('a key that was parked anew waits anew', () => {
  const { time, heldKeys } = createHeldKeys()
  heldKeys.load([parked(DAY_MS)])
  time.now = LONGEST_MS
  const [due] = heldKeys.takeDue(1)
  if (due === undefined) throw new Error('Nothing is due')
  heldKeys.goesOn(due)
  heldKeys.refused(due.ref, 'INVALID_RECORD', { park: true, skipInMs: 0 })
  heldKeys.written(due.ref)
  heldKeys.load([parked(DAY_MS)])

  expect(heldKeys.takeDue(1)).toEqual([])
  time.now += LONGEST_MS
  expect(heldKeys.takeDue(1)).toMatchObject([{ task: 'skip' }])
})
