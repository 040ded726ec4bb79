/** What the consumer counts, through the real SDK. */
import { expect, test } from '@jest/globals'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'
import { TOPIC } from './scripted-subscriber.ts'
import { createSetting } from './setting.ts'

const points = readMetrics()

test('faults are counted from zero, so that the first of each is an increase', async () => {
  await using _setting = await createSetting()
  await eventually('the group is there', async () => (await points('outbox.consumer.crashes')).length > 0)

  const group = { 'messaging.consumer.group.name': 'summary' }
  const topic = { ...group, 'messaging.destination.name': TOPIC }
  expect(await shown('outbox.consumer.crashes')).toEqual([[group, 0]])
  expect(await shown('outbox.consumer.rebalances')).toEqual([[group, 0]])
  expect(await shown('outbox.consumer.order.violations')).toEqual([
    [{ ...topic, kind: 'gap' }, 0],
    [{ ...topic, kind: 'reversal' }, 0],
  ])
})

async function shown(name: string): Promise<unknown> {
  return (await points(name)).map(({ attributes, value }) => [attributes, value])
}
