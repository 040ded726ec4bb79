import { expect, test } from '@jest/globals'
import { type Running, run, silentLogger } from '../../src/messaging/index.ts'
import { type Part, stopInOrder } from '../../src/service/stop.ts'

const options = { handOnMs: 5_000, deadlineMs: 10_000, logger: silentLogger }

/** A part that notes when it begins and ends to stop, and takes as long as `drain` does. */
function part(name: string, events: string[], drain: () => Promise<void> = async () => {}, graceMs = 1_000): Part {
  const running = run(
    async ({ draining }) => {
      await new Promise((resolve) => draining.addEventListener('abort', resolve, { once: true }))
      events.push(`${name} begins`)
      await drain()
      events.push(`${name} ends`)
    },
    { graceMs },
  )
  return { name, running, graceMs }
}

test('each part begins to stop when the one before has ended', async () => {
  const events: string[] = []

  const sound = await stopInOrder(
    ['api', 'relay', 'consumer'].map((name) => part(name, events)),
    options,
  )

  expect(sound).toBe(true)
  expect(events).toEqual(['api begins', 'api ends', 'relay begins', 'relay ends', 'consumer begins', 'consumer ends'])
})

test('a part that takes long holds up the next one for a bounded time', async () => {
  const events: string[] = []
  const { promise, resolve } = Promise.withResolvers<void>()
  const slow = part('api', events, () => promise)
  const next = part('relay', events, async () => resolve())

  const sound = await stopInOrder([slow, next], { ...options, handOnMs: 20 })

  expect(sound).toBe(true)
  expect(events.slice(0, 2)).toEqual(['api begins', 'relay begins'])
})

test('work that was cut off, a failure and a part that never ends are no good order', async () => {
  const never = new Promise<void>(() => {})
  const stuck: Running = { done: never, stop: () => never, [Symbol.asyncDispose]: () => never }
  const failing = run(async () => Promise.reject(new Error('a fault')), { graceMs: 10 })

  expect(await stopInOrder([part('cut', [], async () => new Promise((end) => setTimeout(end, 30)), 10)], options)).toBe(
    false,
  )
  expect(await stopInOrder([{ name: 'failing', running: failing, graceMs: 10 }], options)).toBe(false)
  expect(await stopInOrder([{ name: 'stuck', running: stuck, graceMs: 10 }], { ...options, deadlineMs: 30 })).toBe(
    false,
  )
})
