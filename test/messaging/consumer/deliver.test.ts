import { expect, test } from '@jest/globals'
import { defaultAggregateTypeOf } from '../../../src/messaging/consumer/decode.ts'
import { defineHandlers, defineSetHandler, type ReceivedEvent } from '../../../src/messaging/consumer/handlers.ts'
import { listDeadLetters } from '../../../src/messaging/dead-letters/list.ts'
import { recordOf, TOPIC } from './scripted-subscriber.ts'
import { createSetting, idOf, writeEffect } from './setting.ts'

test('applies the events of a batch in order, and remembers the offset with them', async () => {
  await using setting = await createSetting()
  const records = [0, 1, 2].map((offset) => recordOf(offset))

  const outcome = await setting.subscriber.deliver(records)

  expect(outcome).toEqual({ nextOffset: 3n, pauseMs: 0 })
  expect(await setting.effects()).toEqual(records.map(idOf))
  expect(await setting.subscriber.startOffset({ topic: TOPIC, partition: 0 })).toBe(3n)
})

test('applies an event once, however often it is delivered', async () => {
  await using setting = await createSetting()
  const record = recordOf(0)

  await setting.subscriber.deliver([record, recordOf(1, { id: idOf(record) })])
  await setting.subscriber.deliver([record])
  await setting.subscriber.deliver([record, recordOf(1)])

  expect((await setting.effects()).filter((id) => id === idOf(record))).toHaveLength(1)
})

test('a partition of which nothing is stored is read from the earliest record', async () => {
  await using setting = await createSetting()

  expect(await setting.subscriber.startOffset({ topic: TOPIC, partition: 7 })).toBe('earliest')
})

test('PC-60: acknowledges an event of an unknown type, and its neighbours are applied', async () => {
  await using setting = await createSetting()
  const records = [recordOf(0), recordOf(1, { type: 'OrderTeleported' }), recordOf(2)]

  const outcome = await setting.subscriber.deliver(records)
  const onlyUnknown = await setting.subscriber.deliver([recordOf(3, { type: 'OrderTeleported' })])

  expect(outcome.nextOffset).toBe(3n)
  expect(await setting.effects()).toEqual([records[0], records[2]].map((record) => idOf(record ?? recordOf(0))))
  expect(onlyUnknown.nextOffset).toBe(4n)
  // A batch without effect writes its offset too.
  expect(await setting.subscriber.startOffset({ topic: TOPIC, partition: 0 })).toBe(4n)
  expect(await setting.db('processed_events').whereNotIn('event_id', await setting.effects())).toEqual([])
})

test('PC-21: tombstones and every kind of empty payload arrive as they are', async () => {
  const seen: Pick<ReceivedEvent, 'payload' | 'payloadText'>[] = []
  await using setting = await createSetting(
    defineHandlers<{ OrderPlaced: unknown }>({
      OrderPlaced: async (_trx, { payload, payloadText }) => {
        seen.push({ payload, payloadText })
      },
    }),
  )
  const values = [null, 'null', '""', '{}', '[]', '12345678901234567890.5']

  await setting.subscriber.deliver(values.map((value, offset) => recordOf(offset, { value })))

  expect(seen.map(({ payloadText }) => payloadText)).toEqual(values)
  expect(seen.map(({ payload }) => payload)).toEqual([null, null, '', {}, [], Number('12345678901234567890.5')])
})

test('gives a handler the keys that were sent, whatever was read before', async () => {
  const seen: unknown[] = []
  await using setting = await createSetting(async (_trx, event) => {
    seen.push(event.payload)
  })

  // After the first two the platform's own parser takes the third's key for theirs.
  const values = ['{"size":[],"\\\\":0}', '{"size":[],"\\\\":0}', '{"size":3,"\\"":2}']
  await setting.subscriber.deliver(values.map((value, offset) => recordOf(offset, { value })))

  expect(seen.at(-1)).toEqual({ size: 3, '"': 2 })
})

test.each([
  ['shop.order.events', 'order'],
  ['order.events', 'order'],
  ['orders', 'orders'],
  ['shop.', 'shop.'],
  ['shop..events', '.events'],
])('with the prefix "shop.", records of topic %s are of an aggregate %s unless they say another', (topic, type) => {
  expect(defaultAggregateTypeOf('shop.')(topic)).toBe(type)
})

test("a topic's aggregate type is asked for once, at the start: what the function does afterwards stops nothing", async () => {
  const types: string[] = []
  let isBroken = false
  await using setting = await createSetting(
    async (trx, event) => {
      types.push(event.aggregate.type)
      await writeEffect(trx, event)
    },
    {
      aggregateTypeOf: () => {
        if (isBroken) throw new RangeError('no such topic')
        return 'purchase'
      },
    },
  )
  isBroken = true

  const outcome = await setting.subscriber.deliver([recordOf(0), recordOf(1, { key: null }), recordOf(2)])

  expect(outcome).toEqual({ nextOffset: 3n, pauseMs: 0 })
  expect(types).toEqual(['purchase', 'purchase'])
  expect(await listDeadLetters(setting.db)).toMatchObject([{ offset: 1n, aggregateType: 'purchase' }])
})

test('gives a handler all that the envelope holds', async () => {
  const seen: ReceivedEvent[] = []
  await using setting = await createSetting(async (_trx, event) => {
    seen.push(event)
  })
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00'

  const record = recordOf(5, {
    key: 'o-1',
    value: '{"a":1}',
    headers: { aggregate_version: '3', occurred_at: '2026-01-02T03:04:05.678Z', traceparent, tenant: 'acme' },
  })
  await setting.subscriber.deliver([record])

  expect(seen).toEqual([
    {
      id: idOf(record),
      type: 'OrderPlaced',
      aggregate: { type: 'order', id: 'o-1' },
      version: 3,
      occurredAt: new Date('2026-01-02T03:04:05.678Z'),
      headers: { tenant: 'acme' },
      trace: { traceparent },
      payload: { a: 1 },
      payloadText: '{"a":1}',
      source: { topic: TOPIC, partition: 0, offset: 5n },
    },
  ])
})

test('PC-55: commits only the finished prefix when one of ten keys fails, and applies the others once', async () => {
  const failing = { on: true }
  const records = Array.from({ length: 10 }, (_, offset) => recordOf(offset))
  await using setting = await createSetting(async (trx, event) => {
    if (failing.on && event.id === idOf(records[5] ?? recordOf(0))) throw new Error('not today')
    await writeEffect(trx, event)
  })

  const outcome = await setting.subscriber.deliver(records)
  const stored = await setting.subscriber.startOffset({ topic: TOPIC, partition: 0 })
  failing.on = false
  await setting.subscriber.deliverAll(records.slice(5))

  expect(outcome.nextOffset).toBe(5n)
  expect(outcome.pauseMs).toBeGreaterThan(0)
  expect(stored).toBe(5n)
  expect([...(await setting.effects())].sort()).toEqual(records.map(idOf).sort())
})

test('later events of a failing key wait for it, also within one batch', async () => {
  const failing = { on: true }
  const [first, second, other] = [recordOf(0, { key: 'a' }), recordOf(1, { key: 'a' }), recordOf(2, { key: 'b' })]
  await using setting = await createSetting(async (trx, event) => {
    if (failing.on && event.id === idOf(first)) throw new Error('not today')
    await writeEffect(trx, event)
  })

  await setting.subscriber.deliver([first, second, other])
  const meanwhile = await setting.effects()
  failing.on = false
  await setting.subscriber.deliverAll([first, second, other])

  expect(meanwhile).toEqual([idOf(other)])
  expect(await setting.effects()).toEqual([other, first, second].map(idOf))
})

test('a handler that swallows an error of Postgres has not succeeded', async () => {
  const failing = { on: true }
  await using setting = await createSetting(async (trx, event) => {
    if (failing.on) await trx.raw('select 1 / 0').catch(() => {})
    else await writeEffect(trx, event)
  })
  const records = [recordOf(0), recordOf(1)]

  const alone = await setting.subscriber.deliver(records.slice(0, 1))
  const together = await setting.subscriber.deliver(records)
  failing.on = false
  await setting.subscriber.deliverAll(records)

  expect(alone.nextOffset).toBe(0n)
  expect(together.nextOffset).toBe(0n)
  expect(await setting.effects()).toEqual(records.map(idOf))
})

test('a set handler gets the new events of a batch at once, and each alone after a failure', async () => {
  const calls: number[] = []
  await using setting = await createSetting(
    defineSetHandler<{ OrderPlaced: { ok: boolean } }>(['OrderPlaced'], async (trx, events) => {
      calls.push(events.length)
      if (events.some(({ payload }) => !payload.ok)) throw new Error('one of them is bad')
      await trx('effects').insert(events.map(({ id, aggregate }) => ({ event_id: id, aggregate_id: aggregate.id })))
    }),
  )
  const good = [0, 1, 2].map((offset) => recordOf(offset, { value: '{"ok":true}' }))
  const bad = recordOf(3, { value: '{"ok":false}' })

  await setting.subscriber.deliver(good)
  await setting.subscriber.deliver([...good, bad, recordOf(4, { value: '{"ok":true}' })])

  expect(calls).toEqual([3, 2, 1, 1])
  expect(await setting.effects()).toHaveLength(4)
})

test('PC-50: a transaction used after its handler has returned refuses loudly', async () => {
  const late = Promise.withResolvers<void>()
  const attempts: Promise<unknown>[] = []
  await using setting = await createSetting(async (trx) => {
    attempts.push(late.promise.then(() => trx('effects').insert({ event_id: recordId, aggregate_id: 'late' })))
  })
  const record = recordOf(0)
  const recordId = idOf(record)

  await setting.subscriber.deliver([record])
  late.resolve()

  await expect(Promise.all(attempts)).rejects.toThrow('already complete')
  expect(await setting.effects()).toEqual([])
})
