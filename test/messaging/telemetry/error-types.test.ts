/** How many series errors can make, whatever they state, through the real SDK. */
import { expect, test } from '@jest/globals'
import { countDeadLetter, recordDuration } from '../../../src/messaging/consumer/count.ts'
import { PublishError } from '../../../src/messaging/errors.ts'
import { ATTR_ERROR_TYPE, errorType } from '../../../src/messaging/telemetry/attributes.ts'
import { catalogue } from '../../../src/messaging/telemetry/catalogue.ts'
import { countRetry, measureSend } from '../../../src/messaging/telemetry/measure.ts'
import { readMetrics } from '../../support/telemetry/metric-reader.ts'

const TOPIC = 'order.events'

const points = readMetrics()

/** A driver's failure with a word of its own. */
const failureOf = (reason: string) =>
  new PublishError({ topic: TOPIC, partition: 0 }, { kind: 'outage', outcome: 'refused', reason })

test.each([
  ['timeout expired', 'CONNECT_TIMEOUT'],
  ['Connection terminated due to connection timeout', 'CONNECT_TIMEOUT'],
  ['Query read timeout', 'QUERY_TIMEOUT'],
  ['something else', 'Error'],
])('what node-postgres calls an Error with %j is %s: a wait that was too long has a name', (message, type) => {
  expect(errorType(new Error(message))).toBe(type)
})

test.each([
  ['whose code cannot be read', Object.defineProperty(new Error('no'), 'code', { get: () => fail() })],
  ['whose name is no text', Object.assign(new Error('no'), { name: Symbol('no') })],
  ['behind a proxy', new Proxy(new Error('no'), { get: () => fail() })],
  ['behind a proxy that hides what it is', new Proxy(new Error('no'), { getPrototypeOf: () => fail() })],
])('an error %s is told as another one, and stops nobody who wants to tell of it', (_how, error) => {
  expect(errorType(error)).toBe('_OTHER')
})

test('the reason that an error of somebody else has is no word of ours: it may be anything', () => {
  expect(errorType(Object.assign(new TypeError('no'), { reason: 'alice.miller:4711' }))).toBe('TypeError')
  expect(errorType(failureOf('MESSAGE_TOO_LARGE'))).toBe('MESSAGE_TOO_LARGE')
})

test('a word too long or too odd for a label is none, whoever states it', async () => {
  countRetry('the broker said: "no"')
  countRetry('X'.repeat(65))

  const types = (await points('outbox.relay.retries')).map(({ attributes }) => String(attributes[ATTR_ERROR_TYPE]))
  expect(types.filter((type) => !/^[\w.:-]{1,64}$/.test(type))).toEqual([])
})

test('however many words errors state, a metric has a hundred of them, and one for the rest', async () => {
  for (let n = 0; n < 150; n += 1) {
    const reason = errorType(Object.assign(new Error('no'), { code: `ORDER-${n}` }))
    countDeadLetter(TOPIC, reason)
    recordDuration('summary', TOPIC, 1, reason)
    measureSend({ topic: TOPIC, count: 1, seconds: 0.1, failure: failureOf(`BROKER-${n}`) })
    countRetry(`BROKER-${n}`)
  }

  // One that was met keeps its series.
  countDeadLetter(TOPIC, 'ORDER-7')

  const bounded = Object.values(catalogue).filter(({ attributes }) =>
    (attributes as readonly string[]).includes(ATTR_ERROR_TYPE),
  )
  expect(bounded.length).toBeGreaterThan(0)
  for (const { name } of bounded) {
    const types = (await points(name)).map(({ attributes }) => attributes[ATTR_ERROR_TYPE])
    expect({ name, few: types.length <= 101, rest: types.filter((type) => type === '_OTHER') }).toEqual({
      name,
      few: true,
      rest: ['_OTHER'],
    })
  }
  const deadLettered = await points('outbox.dead_lettered.messages')
  const counted = new Map(deadLettered.map(({ attributes, value }) => [attributes[ATTR_ERROR_TYPE], value]))
  expect([counted.get('ORDER-7'), counted.get('_OTHER')]).toEqual([2, 50])
})

function fail(): never {
  throw new Error('It cannot be looked at')
}
