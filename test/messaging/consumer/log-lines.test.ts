/** What a consumer's log says of an event: which one, where, at which attempt, and in which trace. */
import { expect, test } from '@jest/globals'
import { requestResume, requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { setOutboxName } from '../../../src/messaging/telemetry/attributes.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { createTrace, keepLog } from '../../support/telemetry/log-lines.ts'
import { recordOf, TOPIC } from './scripted-subscriber.ts'
import { createSetting, idOf } from './setting.ts'

const KEY = { holder: 'summary', topic: TOPIC, aggregateType: 'order', aggregateId: 'bad' }

test('each line about an event has its fields and the trace that came with its record, at whatever it is written', async () => {
  const { logger, lines } = keepLog('consumer')
  setOutboxName('orders')
  let refusing = true
  const refuse = async () => {
    if (refusing) throw new RangeError('canary')
  }
  await using setting = await createSetting(refuse, { maxAttempts: 2, logger })
  const traces = [createTrace(), createTrace(), createTrace(), createTrace()]
  const sent = [
    { key: 'bad', version: '1' },
    { key: 'bad', version: '2' },
    { key: 'other', version: '1', type: 'OrderTeleported' },
    { key: 'other', version: '3', type: 'OrderTeleported' },
  ].map(({ key, version, type = 'OrderPlaced' }, offset) =>
    recordOf(offset, {
      key,
      type,
      value: '"canary"',
      headers: { aggregate_version: version, traceparent: traces[offset]?.traceparent ?? '' },
    }),
  )
  const said = (message: string) => lines.filter(({ msg }) => msg === message)

  await setting.subscriber.deliverAll(sent)
  await requestResume(setting.db, KEY)
  await eventually('the redrive has failed', () => said('A redrive failed; its key stays parked').length > 0)
  refusing = false
  await requestSkip(setting.db, KEY)
  await eventually('all of the key is settled', () => said('Redrove a dead letter').length > 0)

  const event = (at: number) => ({
    thread: 'consumer',
    outbox: 'orders',
    consumer: 'summary',
    event_id: idOf(sent[at] ?? { headers: {} }),
    event_type: sent[at]?.headers.event_type,
    aggregate_type: 'order',
    aggregate_id: sent[at]?.key?.toString(),
    topic: TOPIC,
    partition: 0,
    offset: String(at),
    ...traces[at]?.fields,
  })
  const failed = { ...event(0), reason: expect.stringContaining('RangeError') }
  expect(said('A handler failed; its partition waits for the next attempt')).toMatchObject([{ ...failed, attempt: 1 }])
  expect(said('Parked a key after its last attempt')).toMatchObject([{ ...failed, attempt: 2 }])
  expect(said('A redrive failed; its key stays parked')).toMatchObject([{ ...failed, attempt: 3 }])
  expect(said('Skipped a dead letter')).toMatchObject([event(0)])
  expect(said('Redrove a dead letter')).toMatchObject([event(1)])
  expect(said("An aggregate's versions do not follow each other")).toMatchObject([{ ...event(3), kind: 'gap' }])
  expect(JSON.stringify(lines)).not.toContain('canary')
})
