/** What the relay's log says of an event that it holds, parks or skips: which one, where, and in which trace. */
import { expect, test } from '@jest/globals'
import { requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { setOutboxName } from '../../../src/messaging/telemetry/attributes.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { orderEvent } from '../../support/events.ts'
import { createTrace, keepLog } from '../../support/telemetry/log-lines.ts'
import { createRelaySetting, TOPIC } from './setting.ts'

const KEY = { holder: 'relay', topic: TOPIC, aggregateType: 'order', aggregateId: 'bad' }

test('each line about an event has its fields and the trace of its own request, though the loop has none', async () => {
  const { logger, lines } = keepLog('relay-0')
  setOutboxName('orders')
  await using setting = await createRelaySetting()
  const [bad, other] = [createTrace(), createTrace()]
  const first = orderEvent('First', 'bad', { payload: { note: 'canary' } })
  await bad.run(() => setting.append(first))
  await other.run(() => setting.append(orderEvent('OrderPlaced', 'good')))
  setting.broker.faults.refuseRecords(({ headers }) => headers.event_type === 'First')
  const said = (message: string) => lines.filter(({ msg }) => msg === message)

  setting.start({ maxAttempts: 2, logger })
  // Told before it is written down.
  await eventually('it is parked', async () => (await setting.db('held_keys').where({ state: 'parked' })).length > 0)
  await requestSkip(setting.db, KEY)
  await eventually('it is skipped and its key let go', () => said('Held key let go').length > 0)

  const [{ id }] = await setting.db('outbox').where({ event_type: 'First' })
  const event = {
    thread: 'relay-0',
    outbox: 'orders',
    event_id: id,
    event_type: 'First',
    aggregate_type: 'order',
    aggregate_id: 'bad',
    topic: TOPIC,
    ...bad.fields,
  }
  const reason = expect.any(String)
  const partition = expect.any(Number)
  expect(said('Key held')).toMatchObject([
    { ...event, level: 'warn', partition, attempt: 1, reason, retry_in_ms: expect.any(Number) },
  ])
  expect(said('Key parked')).toMatchObject([{ ...event, level: 'warn', partition, attempt: 2, reason }])
  expect(said('First event of a parked key skipped')).toMatchObject([{ ...event, partition: null }])
  expect(said('Held key let go')).toMatchObject([{ outbox: 'orders', topic: TOPIC, aggregate_id: 'bad' }])
  expect(JSON.stringify(lines)).not.toContain('canary')
})
