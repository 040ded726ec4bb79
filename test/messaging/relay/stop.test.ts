import { expect, test } from '@jest/globals'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createRelaySetting, owns, typesOf, unpublished } from './setting.ts'

test('PC-78 a stop while the broker is silent ends within its grace, marks nothing, and the next start goes on', async () => {
  await using setting = await createRelaySetting()
  const relay = setting.start({ graceMs: 500 })
  await owns(relay, 64)
  const hold = setting.broker.faults.hold()
  await setting.append(orderEvent('OrderPlaced', 'order-1'))
  await eventually('it is on its way', () =>
    relay.status().problems.some((problem) => problem.includes('does not acknowledge')),
  )

  // The broker stays silent, so that nothing but the grace can end it.
  await relay.stop()
  const left = await unpublished(setting.db)
  hold.release()
  setting.start()
  await setting.drained()

  expect(left).toBe(1)
  expect(new Set(typesOf(setting.broker, 'order-1'))).toEqual(new Set(['OrderPlaced']))
})
