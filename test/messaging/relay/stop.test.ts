import { expect, test } from '@jest/globals'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, owns, typesOf, unpublished } from './setting.ts'

test('PC-78 a stop while the broker is silent ends within its grace, marks nothing, and the next start goes on', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ graceMs: 500 })
  await owns(relay, 64)
  const mend = setting.broker.faults.delay(60_000)
  await setting.append(orderEvent('OrderPlaced', 'order-1'))
  await eventually('it is on its way', () =>
    relay.status().problems.some((problem) => problem.includes('does not acknowledge')),
  )

  const from = performance.now()
  // What was cut off is said: a service ends with another code then.
  await relay.stop().catch(() => {})
  const took = performance.now() - from
  const left = await unpublished(setting.db)
  mend()
  setting.start()
  await setting.drained()

  expect(took).toBeLessThan(5_000)
  expect(left).toBe(1)
  expect(new Set(typesOf(setting.broker, 'order-1'))).toEqual(new Set(['OrderPlaced']))
})
