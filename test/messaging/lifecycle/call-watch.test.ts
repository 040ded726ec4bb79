import { expect, test } from '@jest/globals'
import { CallWatch } from '../../../src/messaging/lifecycle/call-watch.ts'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'

function createWatch() {
  let now = 0
  const watch = new CallWatch({ clock: { ...systemClock, now: () => now }, caller: 'consumer' })
  const pass = (ms: number) => {
    now += ms
  }
  return { watch, pass }
}

test('the oldest of the calls that nobody has answered is told of after five seconds, until it is answered', () => {
  const { watch, pass } = createWatch()

  const first = watch.begin()
  pass(4_000)
  const second = watch.begin()
  pass(1_000)
  expect(watch.problem).toBeNull()
  pass(3_000)
  expect(watch.problem).toBe('The database has not answered the consumer for 8 s')
  first.end()
  expect(watch.problem).toBeNull()
  pass(3_000)
  expect(watch.problem).toBe('The database has not answered the consumer for 7 s')
  second.end()
  expect(watch.problem).toBeNull()
})

test('what is excepted of a wait is not counted, and what follows counts from there', async () => {
  const { watch, pass } = createWatch()
  const wait = watch.begin()
  pass(4_000)

  await wait.except(async () => {
    pass(60_000)
    expect(watch.problem).toBeNull()
  })
  pass(4_000)
  expect(watch.problem).toBeNull()
  pass(2_000)
  expect(watch.problem).toBe('The database has not answered the consumer for 6 s')
  wait.end()
})

test('a wait that ends while something is excepted of it is over for good', async () => {
  const { watch, pass } = createWatch()
  const wait = watch.begin()
  const { promise, resolve } = Promise.withResolvers<void>()

  const excepted = wait.except(() => promise)
  wait.end()
  resolve()
  await excepted
  pass(60_000)

  expect(watch.problem).toBeNull()
})
