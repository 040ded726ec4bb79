import { expect, test } from '@jest/globals'
import { lastingState } from '../../../src/messaging/lifecycle/lasting-state.ts'

test('a state is told when it begins, once a minute while it lasts, and when it has ended', () => {
  let now = 1_000
  const said: string[] = []
  const state = lastingState({ now: () => now })
  const meet = () => state.holds(({ times, seconds }) => said.push(`holds, ${times} in ${seconds} s`))
  const end = () => state.ends(({ times, seconds }) => said.push(`ended, ${times} in ${seconds} s`))

  end()
  for (let met = 0; met < 14; met += 1) {
    meet()
    now += 5_000
  }
  end()
  end()
  meet()

  expect(said).toEqual(['holds, 1 in 0 s', 'holds, 13 in 60 s', 'ended, 14 in 70 s', 'holds, 1 in 0 s'])
})
