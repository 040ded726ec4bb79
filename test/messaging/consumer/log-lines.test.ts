/** What a consumer's log says of an event: which one, where, at which attempt, and in which trace. */
import { expect, test } from '@jest/globals'
import { listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
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

test('what is said of a request is what has become of the event', async () => {
  const { logger, lines } = keepLog('consumer')
  await using setting = await createSetting(
    async () => {
      throw new RangeError('refused')
    },
    { maxAttempts: 1, logger },
  )
  const { db } = setting
  const told = () => lines.filter(({ msg }) => /redr|skip|settled|let a key/i.test(String(msg))).map(({ msg }) => msg)
  const letGo = () => eventually('the key is let go', () => told().includes('Let a key go'))
  await setting.subscriber.deliverAll([recordOf(0, { key: 'bad' }), recordOf(1, { key: 'bad' })])
  // Another instance, which had the partition before, has processed both.
  const ids = await db('dead_letters').pluck('event_id')
  await db('processed_events').insert(ids.map((event_id) => ({ consumer: 'summary', event_id })))

  await requestSkip(db, KEY)
  await letGo()

  const nothingNew = 'Settled a dead letter that had been processed before'
  expect(told()).toEqual([nothingNew, nothingNew, 'Let a key go'])
})

test('a redrive whose handler ends the transaction itself is not told of as one that went well', async () => {
  const { logger, lines } = keepLog('consumer')
  let calls = 0
  await using setting = await createSetting(
    async (trx) => {
      calls += 1
      if (calls === 1) throw new RangeError('refused')
      await trx.rollback()
    },
    { maxAttempts: 1, logger },
  )
  await setting.subscriber.deliverAll([recordOf(0, { key: 'bad' })])

  await requestResume(setting.db, KEY)
  await eventually('it was tried', async () => calls > 2 || (await listHeldKeys(setting.db))[0]?.request === null)

  expect(lines.filter(({ msg }) => msg === 'Redrove a dead letter')).toEqual([])
  expect(await listHeldKeys(setting.db)).toHaveLength(1)
})
