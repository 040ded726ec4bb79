import { expect, test } from '@jest/globals'
import { describeWay, drawTimeline } from '../../scripts/timeline.ts'
import { type JaegerAnswer, readTrace } from '../../scripts/trace.ts'

const EVENT = 'event-1'

interface Given {
  readonly service: string
  readonly id: string
  readonly parent?: string
  readonly name: string
  /** Milliseconds: start and duration. */
  readonly at: readonly [number, number]
  readonly eventId?: string
}

const spans = {
  root: { service: 'orders-api', id: 'a', name: 'POST /graphql', at: [0, 20] },
  commit: { service: 'orders-api', id: 'b', parent: 'a', name: 'pg.query:COMMIT orders', at: [14, 2] },
  create: { service: 'orders-api', id: 'c', parent: 'a', name: 'create order.events', at: [8, 1], eventId: EVENT },
  send: { service: 'outbox-relay', id: 'd', parent: 'c', name: 'send order.events', at: [19, 8], eventId: EVENT },
  process: {
    service: 'orders-summary',
    id: 'e',
    parent: 'd',
    name: 'process order.events',
    at: [50, 9.5],
    eventId: EVENT,
  },
  dedupe: { service: 'orders-summary', id: 'f', parent: 'e', name: 'dedupe processed_events', at: [51, 8] },
  mark: { service: 'orders-summary', id: 'h', parent: 'f', name: 'pg.query:INSERT orders', at: [51, 2] },
} as const satisfies Record<string, Given>

function answerOf(given: readonly Given[]): JaegerAnswer {
  const time = (ms: number) => String(BigInt(Math.round(ms * 1_000)) * 1_000n)
  return {
    result: {
      resourceSpans: given.map(({ service, id, parent = '', name, at: [start, duration], eventId }) => ({
        resource: { attributes: [{ key: 'service.name', value: { stringValue: service } }] },
        scopeSpans: [
          {
            spans: [
              {
                spanId: id,
                parentSpanId: parent,
                name,
                startTimeUnixNano: time(1_000 + start),
                endTimeUnixNano: time(1_000 + start + duration),
                attributes: eventId ? [{ key: 'messaging.message.id', value: { stringValue: eventId } }] : [],
              },
            ],
          },
        ],
      })),
    },
  }
}

test.each([
  ['its root has not arrived, and one span without its parent looks like one', ['send', 'process', 'dedupe']],
  ['the effect has not arrived', ['root', 'commit', 'create', 'send']],
  ['a part between two others has not arrived', ['root', 'commit', 'create', 'process', 'dedupe']],
] as const)('a trace is not whole while %s', (_what, names) => {
  expect(readTrace(answerOf(names.map((name) => spans[name])), EVENT).whole).toBe(false)
})

test('a trace is whole with one root, every parent, and the effect of the event that is followed', () => {
  const all = answerOf(Object.values(spans))

  expect(readTrace(all, EVENT).whole).toBe(true)
  expect(readTrace(all, 'another event of the same mutation').whole).toBe(false)
})

test("an event's way is one line whose stages add up", () => {
  const { roots } = readTrace(answerOf(Object.values(spans)), EVENT)

  expect(describeWay(roots, EVENT)).toBe(
    'mutation 16 ms → waited 3.0 ms → send 8.0 ms → waited 23 ms → effect 9.5 ms: 60 ms in all',
  )
})

test("what an event took alone is not told where it shared its batch's statements", () => {
  const { mark: _, ...shared } = spans
  const { roots } = readTrace(answerOf(Object.values(shared)), EVENT)

  expect(describeWay(roots, EVENT)).toBe(
    'mutation 16 ms → waited 3.0 ms → send 8.0 ms → effect in a batch after 23 ms: 60 ms in all',
  )
})

test('the time line shows each service for itself, bars where the time went, as wide as the terminal, and at most 100 columns', () => {
  const { roots } = readTrace(answerOf(Object.values(spans)), EVENT)

  const draw = (columns: number) => drawTimeline(roots, { columns, paint: (_service, text) => text })

  expect(draw(100).map((line) => line.trimEnd())).toMatchSnapshot()
  for (const columns of [80, 100, 200]) {
    for (const line of draw(columns)) expect(line.length).toBeLessThanOrEqual(Math.min(columns, 100))
  }
})

test('without an event the way is that of the first one that had its effect', () => {
  const later = { ...spans.process, id: 'g', parent: 'a', at: [60, 1], eventId: 'event-2' } as const
  const { roots, whole } = readTrace(answerOf([later, ...Object.values(spans)]), null)

  expect(whole).toBe(true)
  expect(describeWay(roots, null)).toBe(describeWay(roots, EVENT))
  expect(describeWay(roots, null)).not.toBeNull()
})
