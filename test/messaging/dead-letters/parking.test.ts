import { expect, test } from '@jest/globals'
import { listDeadLetters, listHeldKeys, readDeadLetter } from '../../../src/messaging/dead-letters/list.ts'
import { requestResume, requestRetryNow, requestSkip } from '../../../src/messaging/dead-letters/requests.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { recordOf, TOPIC } from '../consumer/scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, type Setting, writeEffect } from '../consumer/setting.ts'

const KEY = { holder: 'summary', topic: TOPIC, aggregateType: 'order', aggregateId: 'a' }
const TOO_MANY_CONNECTIONS = '53300'
/** Class and place, and nothing of the message. */
const RANGE_ERROR = expect.stringMatching(/^RangeError at dead-letters\/parking\.test\.ts:\d+:\d+$/)

/** A consumer whose handler refuses the events in `refused`, and notes the headers of those that it accepts. */
async function createRefusing(options: Parameters<typeof createSetting>[1] = {}) {
  const refused = new Set<string>()
  const accepted: Readonly<Record<string, string>>[] = []
  const setting = await createSetting(async (trx, event) => {
    if (refused.has(event.id)) throw new RangeError(`secret ${JSON.stringify(event.payload)}`)
    await writeEffect(trx, event)
    accepted.push(event.headers)
  }, options)
  return { setting, refused, accepted, [Symbol.asyncDispose]: () => setting[Symbol.asyncDispose]() }
}

async function letGo({ db }: Setting): Promise<void> {
  await eventually('every key is let go', async () => (await listHeldKeys(db)).length === 0)
}

test('PC-61: after the last attempt a key is parked with its event whole, and all other keys go on', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  const bad = recordOf(0, { key: 'a', value: '{"card":"4111"}', headers: { tenant: 'acme' } })
  const [follower, other] = [recordOf(1, { key: 'a' }), recordOf(2, { key: 'b' })]
  refused.add(idOf(bad))

  await setting.subscriber.deliverAll([bad, follower, other])

  expect(await setting.effects()).toEqual([idOf(other)])
  expect(await listHeldKeys(setting.db)).toMatchObject([
    { ...KEY, state: 'parked', attempts: 5, reason: RANGE_ERROR, eventId: idOf(bad), eventType: 'OrderPlaced' },
  ])
  const letters = await listDeadLetters(setting.db)
  expect(letters).toMatchObject([
    { ...KEY, state: 'dead', eventId: idOf(bad), partition: 0, offset: 0n, reason: RANGE_ERROR, attempts: 5 },
    { ...KEY, state: 'waiting', eventId: idOf(follower), offset: 1n, reason: null },
  ])
  const whole = await readDeadLetter(setting.db, letters[0]?.seq ?? 0n)
  expect(whole).toEqual({ key: bad.key, value: bad.value, headers: bad.headers })
  // Nothing of the error's message, which may hold values, is kept anywhere but in the record itself.
  expect(JSON.stringify(await setting.db('held_keys'))).not.toContain('4111')
})

test('while an event is tried again its partition says which one and why, and is not ready', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  const bad = recordOf(7, { key: 'a', value: '{"card":"4111"}' })
  refused.add(idOf(bad))

  await setting.subscriber.deliver([bad])
  const during = setting.consumer.status()
  refused.clear()
  await setting.subscriber.deliverAll([bad])
  const after = setting.consumer.status()

  expect(during.ready).toBe(false)
  expect(during.problems.join()).toContain(
    `order.events, partition 0, offset 7: OrderPlaced ${idOf(bad)} of order a has failed 1 times (RangeError at dead-letters/parking.test.ts:`,
  )
  expect(during.problems.join()).not.toContain('4111')
  expect(after).toMatchObject({ ready: true, problems: [], holding: [] })
  expect(await listHeldKeys(setting.db)).toEqual([])
})

test('attempts go on counting when another instance takes the partition over', async () => {
  await using refusing = await createRefusing({ maxAttempts: 2 })
  const { setting, refused } = refusing
  const bad = recordOf(0, { key: 'a' })
  refused.add(idOf(bad))
  await setting.subscriber.deliver([bad])
  const before = await listHeldKeys(setting.db)

  await using other = await joinSetting(
    setting,
    async () => {
      throw new TypeError('nor here')
    },
    { maxAttempts: 2 },
  )
  await other.subscriber.deliverAll([bad])

  expect(before).toMatchObject([{ state: 'backoff', attempts: 1, reason: RANGE_ERROR }])
  expect(await listHeldKeys(setting.db)).toMatchObject([
    { state: 'parked', attempts: 2, reason: expect.stringMatching(/^TypeError at /) },
  ])
})

test('resume applies the dead letter first and then its followers, in order, and lets the key go', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  const records = [0, 1, 2].map((offset) => recordOf(offset, { key: 'a' }))
  refused.add(idOf(records[0] ?? recordOf(0)))
  await setting.subscriber.deliverAll(records)
  const parked = await setting.effects()

  refused.clear()
  expect(await requestResume(setting.db, KEY)).toBe('requested')
  await letGo(setting)
  const late = recordOf(3, { key: 'a' })
  await setting.subscriber.deliverAll([late])

  expect(parked).toEqual([])
  expect(await setting.effects()).toEqual([...records, late].map(idOf))
  expect(await listDeadLetters(setting.db)).toEqual([])
  expect((await listDeadLetters(setting.db, { states: ['redriven'] })).map(({ eventId }) => eventId)).toEqual(
    records.map(idOf),
  )
})

test('a resume that fails again leaves the key parked at the event that failed, and the rest waits on', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  const [first, second, third] = [0, 1, 2].map((offset) => recordOf(offset, { key: 'a' })) as [
    ReturnType<typeof recordOf>,
    ReturnType<typeof recordOf>,
    ReturnType<typeof recordOf>,
  ]
  refused.add(idOf(first)).add(idOf(second))
  await setting.subscriber.deliverAll([first, second, third])

  refused.delete(idOf(first))
  await requestResume(setting.db, KEY)
  await eventually(
    'the second is the one that failed',
    async () => (await listHeldKeys(setting.db))[0]?.eventId === idOf(second),
  )

  expect(await setting.effects()).toEqual([idOf(first)])
  expect(await listHeldKeys(setting.db)).toMatchObject([{ state: 'parked', request: null }])
  expect(await listDeadLetters(setting.db)).toMatchObject([
    { eventId: idOf(second), state: 'dead', reason: RANGE_ERROR },
    { eventId: idOf(third), state: 'waiting' },
  ])
})

test('a resume that the database keeps from being carried out says why, and is carried out once that is over', async () => {
  let failing = 'no'
  await using setting = await createSetting(async (trx, event) => {
    if (failing !== '') throw Object.assign(new Error('no'), { code: failing })
    await writeEffect(trx, event)
  })
  const event = recordOf(0, { key: 'a' })
  await setting.subscriber.deliverAll([event])

  failing = TOO_MANY_CONNECTIONS
  await requestResume(setting.db, KEY)
  const problem = new RegExp(
    `^The request for order a of ${TOPIC} cannot be carried out \\(${TOO_MANY_CONNECTIONS} at `,
  )
  await eventually('it says why', () => setting.consumer.status().problems.some((said) => problem.test(said)))
  failing = ''
  await letGo(setting)

  expect(await setting.effects()).toEqual([idOf(event)])
  await eventually('it is well', () => setting.consumer.status().ready)
})

/** The next dead letters are numbered from 9: in text, 10 comes before that. */
async function beginAtNine({ db }: Setting): Promise<void> {
  await db.raw('alter sequence dead_letters_seq_seq restart with 9')
}

test('resume keeps the order of a key also where the numbers of its dead letters grow longer', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  await beginAtNine(setting)
  const records = Array.from({ length: 5 }, (_, offset) => recordOf(offset, { key: 'a' }))
  const [bad] = records
  if (bad) refused.add(idOf(bad))
  await setting.subscriber.deliverAll(records)

  refused.clear()
  await requestResume(setting.db, KEY)
  await letGo(setting)

  expect(await setting.effects()).toEqual(records.map(idOf))
})

test('skip leaves out the event that its key waits for also where the numbers of dead letters grow longer', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  await beginAtNine(setting)
  const [bad, ...good] = Array.from({ length: 3 }, (_, offset) => recordOf(offset, { key: 'a' }))
  if (bad) refused.add(idOf(bad))
  await setting.subscriber.deliverAll(bad ? [bad, ...good] : good)

  await requestSkip(setting.db, KEY)
  await letGo(setting)

  expect(await setting.effects()).toEqual(good.map(idOf))
  expect(await listDeadLetters(setting.db, { states: ['skipped'] })).toMatchObject([{ eventId: bad && idOf(bad) }])
})

test('skip leaves out the first event alone, for good, and lets its followers go on', async () => {
  await using refusing = await createRefusing()
  const { setting, refused } = refusing
  const [bad, follower] = [recordOf(0, { key: 'a' }), recordOf(1, { key: 'a' })]
  refused.add(idOf(bad))
  await setting.subscriber.deliverAll([bad, follower])

  expect(await requestSkip(setting.db, KEY)).toBe('requested')
  await letGo(setting)
  refused.clear()
  await setting.subscriber.deliverAll([bad, follower])

  expect(await setting.effects()).toEqual([idOf(follower)])
  expect(
    await setting
      .db('processed_events')
      .where({ event_id: idOf(bad) })
      .pluck('outcome'),
  ).toEqual(['skipped'])
  expect(await listDeadLetters(setting.db, { states: ['skipped'] })).toMatchObject([{ eventId: idOf(bad) }])
})

test('retry-now shortens a back-off, and resume and skip are for parked keys alone', async () => {
  await using refusing = await createRefusing({ retryFirstMs: 3_600_000, retryMaxMs: 3_600_000 })
  const { setting, refused } = refusing
  const bad = recordOf(0, { key: 'a' })
  refused.add(idOf(bad))
  const first = await setting.subscriber.deliver([bad])
  const resting = await setting.subscriber.deliver([bad])
  refused.clear()

  expect(await requestResume(setting.db, KEY)).toBe('not_applicable')
  expect(await requestSkip(setting.db, { ...KEY, aggregateId: 'nobody' })).toBe('not_held')
  expect(await requestRetryNow(setting.db, KEY)).toBe('requested')
  const retried = await setting.subscriber.deliver([bad])

  expect([first.nextOffset, resting.nextOffset, retried.nextOffset]).toEqual([0n, 0n, 1n])
  expect(first.pauseMs).toBe(1_000)
  expect(await setting.effects()).toEqual([idOf(bad)])
})

test('a parked event of broken JSON costs no further attempt, and is set aside byte for byte', async () => {
  await using setting = await createSetting()
  const [bad, neighbour] = [recordOf(0, { key: 'a', value: '{"half' }), recordOf(1, { key: 'b' })]

  await setting.subscriber.deliverAll([bad, neighbour])

  expect(await setting.effects()).toEqual([idOf(neighbour)])
  const [letter] = await listDeadLetters(setting.db)
  expect(letter).toMatchObject({ state: 'dead', reason: 'UNDECODABLE_PAYLOAD', attempts: 1 })
  expect((await readDeadLetter(setting.db, letter?.seq ?? 0n))?.value?.toString()).toBe('{"half')
})

test('a record without a usable event id is a dead letter of its place, parks no key, and is set aside once', async () => {
  await using setting = await createSetting()
  const foreign = [
    recordOf(0, { key: 'a', headers: { event_id: 'seven' } }),
    recordOf(1, { key: null }),
    recordOf(2, { key: 'zero\0' }),
    recordOf(3, { key: 'a', type: '', headers: { strange: '\0' } }),
  ]
  const ours = recordOf(4, { key: 'a' })

  await setting.subscriber.deliverAll([...foreign, ours])
  await setting.subscriber.deliverAll([...foreign, ours])

  expect(await setting.effects()).toEqual([idOf(ours)])
  expect(await listHeldKeys(setting.db)).toEqual([])
  expect(
    (await listDeadLetters(setting.db)).map(({ eventId, offset, reason }) => ({ eventId, offset, reason })),
  ).toEqual([
    { eventId: null, offset: 0n, reason: 'EVENT_ID_NOT_UUID' },
    { eventId: null, offset: 1n, reason: 'NO_KEY' },
    { eventId: null, offset: 2n, reason: 'NO_KEY' },
    { eventId: null, offset: 3n, reason: 'NO_EVENT_TYPE' },
  ])
})

test('what is set aside keeps the names of its headers, and a handler gets them when it is resumed', async () => {
  await using refusing = await createRefusing({ maxAttempts: 1 })
  const { setting, refused, accepted } = refusing
  // Names that the platform's own parser takes for one another.
  const records = ['\\', '"', '\n'].map((name, offset) => recordOf(offset, { key: 'a', headers: { [name]: 'x' } }))
  for (const record of records) refused.add(idOf(record))

  await setting.subscriber.deliverAll(records)
  const letters = await listDeadLetters(setting.db)
  const whole = await Promise.all(letters.map(({ seq }) => readDeadLetter(setting.db, seq)))
  refused.clear()
  await requestResume(setting.db, KEY)
  await letGo(setting)

  expect(whole.map((letter) => letter?.headers)).toEqual(records.map(({ headers }) => headers))
  expect(accepted).toEqual([{ '\\': 'x' }, { '"': 'x' }, { '\n': 'x' }])
})

test('a foreign record of a topic made anew is not taken for the one that had its place before', async () => {
  await using setting = await createSetting(writeEffect, { deriveIds: true })
  const before = recordOf(0, { headers: { event_id: '' } })
  const anew = { ...before, timestamp: new Date(before.timestamp.getTime() + 1) }

  await setting.subscriber.deliver([before])
  await setting.subscriber.deliver([anew])

  expect(await setting.effects()).toHaveLength(2)
})

test('a foreign record can be consumed under an id that comes from its place', async () => {
  await using setting = await createSetting(writeEffect, { deriveIds: true })
  const record = recordOf(0, { headers: { event_id: '' } })

  await setting.subscriber.deliver([record])
  await setting.subscriber.deliver([record])

  expect(await setting.effects()).toHaveLength(1)
})

test('each dead letter is also an outbox row for the dead-letter topic, with an id of its own', async () => {
  await using refusing = await createRefusing({ maxAttempts: 1 })
  const { setting, refused } = refusing
  const bad = recordOf(3, { key: 'a', value: '{"n":1}' })
  refused.add(idOf(bad))

  await setting.subscriber.deliverAll([bad, recordOf(4, { key: 'c', value: '"\\u0000' })])

  const rows = await setting.db('outbox').orderBy('seq')
  expect(rows).toMatchObject([
    {
      topic: 'order.events.summary.dlq',
      aggregate_type: 'order',
      aggregate_id: 'a',
      event_type: 'OrderPlaced',
      payload: { n: 1 },
      headers: {
        original_event_id: idOf(bad),
        original_topic: TOPIC,
        original_partition: '0',
        original_offset: '3',
        dead_letter_reason: 'RangeError',
      },
    },
    { aggregate_id: 'c', headers: { payload_encoding: 'base64', dead_letter_reason: 'UNDECODABLE_PAYLOAD' } },
  ])
  expect(rows[0].id).not.toBe(idOf(bad))
})

test('an event that comes again after its dead letter was settled, beyond the memory of the inbox, waits anew', async () => {
  await using refusing = await createRefusing({ maxAttempts: 1 })
  const { setting, refused } = refusing
  const [first, second] = [recordOf(0, { key: 'a' }), recordOf(1, { key: 'a' })]
  refused.add(idOf(first))
  await setting.subscriber.deliverAll([first, second])
  await requestSkip(setting.db, KEY)
  await letGo(setting)

  await setting.db('processed_events').delete()
  await setting.subscriber.deliverAll([first, second])

  expect(await listDeadLetters(setting.db)).toMatchObject([
    { eventId: idOf(first), state: 'dead' },
    { eventId: idOf(second), state: 'waiting' },
  ])
})
