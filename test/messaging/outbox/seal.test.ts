/** Which events cannot be sealed: those that would not say on the topic what they said here. */
import { expect, test } from '@jest/globals'
import { type DomainEvent, rawJson } from '../../../src/messaging/envelope.ts'
import { InvalidEventError } from '../../../src/messaging/errors.ts'
import { seal } from '../../../src/messaging/outbox/seal.ts'
import { orderEvent } from '../../support/events.ts'

const SECRET = 'sekret'
const cyclic: Record<string, unknown> = { text: SECRET }
cyclic.self = cyclic

/** One event with one thing wrong. */
const wrong = (part: Record<string, unknown>) => ({ ...orderEvent('OrderPlaced', 'o-1'), ...part }) as DomainEvent
const payload = (value: unknown) => wrong({ payload: value })
const headers = (value: Record<string, unknown>) => wrong({ headers: value })

test.each([
  ['type', 'an empty type', wrong({ type: '' })],
  ['type', 'a type that is too long', wrong({ type: 'x'.repeat(201) })],
  ['type', 'a type with the zero character', wrong({ type: 'a\0' })],
  ['aggregate', 'no aggregate', wrong({ aggregate: undefined })],
  ['aggregate.type', 'a type that no topic can have', wrong({ aggregate: { type: 'order line', id: '1' } })],
  ['aggregate.version', 'a field that no aggregate has', wrong({ aggregate: { type: 'order', id: '1', version: 3 } })],
  ['aggregate.id', 'an empty id', wrong({ aggregate: { type: 'order', id: '' } })],
  ['aggregate.id', 'an id that is a number', wrong({ aggregate: { type: 'order', id: 7 } })],
  ['aggregate.id', 'an id of more than 1,024 bytes', wrong({ aggregate: { type: 'order', id: 'ä'.repeat(513) } })],
  ['aggregate.id', 'an id with half of a surrogate pair', wrong({ aggregate: { type: 'order', id: '\ud83d' } })],
  ['version', 'a version that is no whole number', wrong({ version: 1.5 })],
  ['version', 'a negative version', wrong({ version: -1 })],
  ['occurredAt', 'an invalid date', wrong({ occurredAt: new Date(Number.NaN) })],
  ['occurredAt', 'a year that Postgres writes in another way', wrong({ occurredAt: new Date(8.64e15) })],
  ['headers.event_id', 'a header of the envelope', headers({ event_id: SECRET })],
  ['headers.Traceparent', 'a header of the envelope in other case', headers({ Traceparent: SECRET })],
  ['headers.tenant', 'a header that is no text', headers({ tenant: 1 })],
  ['headers.tenant', 'a header with the zero character', headers({ tenant: `${SECRET}\0` })],
  ['headers', 'a header without name', headers({ '': SECRET })],
  ['headers', 'a header with a backslash in its name', headers({ 'a\\': SECRET })],
  ['headers', 'a header with a quote in its name', headers({ 'a"': SECRET })],
  ['headers', 'a header with a space in its name', headers({ 'a b': SECRET })],
  ['headers', 'headers as a list', wrong({ headers: [SECRET] })],
  ['headers', 'headers as a Map', wrong({ headers: new Map([['tenant', SECRET]]) })],
  ['headers', 'headers of another kind', wrong({ headers: new Headers({ tenant: SECRET }) })],
  ['payload', 'no payload', payload(undefined)],
  ['payload', 'a bigint', payload({ total: 1n })],
  ['payload', 'NaN', payload({ total: Number.NaN })],
  ['payload', 'an infinity, deep inside', payload([{ a: [Number.POSITIVE_INFINITY] }])],
  ['payload', 'an invalid date', payload({ at: new Date(Number.NaN) })],
  ['payload', 'undefined in an array', payload([1, undefined])],
  ['payload', 'a hole in an array', payload(new Array(2))],
  ['payload', 'a function', payload({ f: () => SECRET })],
  ['payload', 'a function as a whole', payload(() => SECRET)],
  ['payload', 'a symbol', payload({ s: Symbol(SECRET) })],
  ['payload', 'a Map', payload({ m: new Map([[1, SECRET]]) })],
  ['payload', 'a promise that nobody awaited', payload({ p: Promise.resolve(SECRET) })],
  ['payload', 'a cycle', payload(cyclic)],
  ['payload', 'the zero character', payload({ text: `${SECRET}\0` })],
  ['payload', 'the zero character in a name', payload({ [`${SECRET}\0`]: 1 })],
  ['payload', 'half of a surrogate pair', payload(`${SECRET}\ud83d`)],
  ['payload', 'two halves in the wrong order', payload('\ude00\ud83d')],
  ['payload', 'raw JSON that does not parse', payload(rawJson(`{"${SECRET}`))],
  ['payload', 'raw JSON with an escaped zero character', payload(rawJson('"\\u0000"'))],
  ['payload', 'raw JSON with an escaped half of a pair', payload(rawJson('"\\ud83d"'))],
  ['payload', 'raw JSON with an escaped half behind text', payload(rawJson('"\\ud83dx\\ude00"'))],
  ['payload', 'raw JSON with half of a pair as it is', payload(rawJson('"\ud83d"'))],
])('refuses %s: %s', (field, _, event) => {
  const refused = refusalOf(() => seal(event, 3))

  expect(refused).toMatchObject({ code: 'MESSAGING_INVALID_EVENT', field, index: 3 })
  expect(refused?.message).toContain(`Event 3's ${field} `)
  expect(refused?.message).not.toContain(SECRET)
})

test('says how to send a bigint', () => {
  expect(refusalOf(() => seal(payload({ total: 1n }), 0))?.message).toBe(
    `Event 0's payload holds a bigint, which JSON.stringify refuses; give the whole payload as rawJson(text), at "total"`,
  )
})

test('seals what JSON can say', () => {
  const plain = seal(payload({ a: [1, { b: null }], none: undefined, at: new Date(0), boxed: Object('text') }), 0)

  expect(plain.payload).toBe('{"a":[1,{"b":null}],"at":"1970-01-01T00:00:00.000Z","boxed":"text"}')
})

test('gives events sealed in one millisecond ids that rise', () => {
  const ids = Array.from({ length: 1_000 }, () => seal(orderEvent('OrderPlaced'), 0).id)

  expect(ids).toEqual([...ids].sort())
})

function refusalOf(work: () => unknown): InvalidEventError | null {
  try {
    work()
    return null
  } catch (error) {
    if (error instanceof InvalidEventError) return error
    throw error
  }
}
