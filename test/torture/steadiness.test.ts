import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { findSteadiness, holdMs, type Look, loosen, STEADY, type Waits } from './steadiness.ts'

const calm: Waits = { broker: 20, effect: 150, answer: 10 }

/** A look every 250 ms from 0 on, each with `calm` and what it is given over it. */
function looks(...each: readonly (Partial<Waits> | null)[]): Look[] {
  return each.map((over, index) => ({
    at: index * 250,
    waits: over === null ? null : { ...calm, ...over },
    pending: 0,
  }))
}

const calmFor = (ms: number) => Array.from({ length: ms / 250 + 1 }, () => ({}))

test('is steady from the first look on when nobody waits long for as long as it takes', () => {
  expect(findSteadiness(looks(...calmFor(holdMs(STEADY))), STEADY)).toEqual({ at: 0, last: [] })
})

test('is not steady yet before that has held', () => {
  expect(findSteadiness(looks(...calmFor(holdMs(STEADY) - 250)), STEADY)).toBeNull()
})

test.each<[string, Partial<Waits> | null, readonly string[]]>([
  ['an event waits for the broker', { broker: STEADY.broker + 1 }, ['broker']],
  ['an event waits for its effect', { effect: STEADY.effect + 1 }, ['effect']],
  ['no client is answered', { answer: STEADY.answer + 1 }, ['answer']],
  ['the database does not answer', null, ['broker', 'effect', 'answer']],
])('begins anew after a look at which %s, and says so', (_, bad, last) => {
  const seen = looks({}, {}, {}, bad, ...calmFor(holdMs(STEADY)))

  expect(findSteadiness(seen, STEADY)).toEqual({ at: 1_000, last })
})

test('sees a lane that stood still from the beginning: its events are late before the time is over', () => {
  const stuck = Array.from({ length: 40 }, (_, index) => ({ broker: index * 250 }))

  expect(findSteadiness(looks(...stuck), STEADY)).toBeNull()
})

test('never calls a time steady that holds a wait beyond its bound', () => {
  const wait = fc.record({ broker: fc.nat(1_200), effect: fc.nat(2_200), answer: fc.nat(1_200) })
  fc.assert(
    fc.property(fc.array(fc.option(wait, { freq: 30 }), { maxLength: 60 }), (each) => {
      const seen = looks(...each)
      const found = findSteadiness(seen, STEADY)
      if (found === null) return
      const within = seen.filter(({ at }) => at >= found.at && at < found.at + holdMs(STEADY))
      expect(
        within.every(
          ({ waits }) =>
            waits !== null &&
            waits.broker <= STEADY.broker &&
            waits.effect <= STEADY.effect &&
            waits.answer <= STEADY.answer,
        ),
      ).toBe(true)
    }),
  )
})

test('a slow machine is measured by its own longest waits, a fast one by the usual bounds', () => {
  expect(loosen(STEADY, looks({}, null, { effect: 3_400.4 }, { effect: 2_900 }))).toEqual({ ...STEADY, effect: 3_400 })
  expect(loosen(STEADY, looks({}, {}))).toEqual(STEADY)
})
