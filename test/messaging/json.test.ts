import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { parseJson } from '../../src/messaging/json.ts'

test.each([
  ['{"h":[],"\\\\":0}', '{"h":1,"\\"":2}', { h: 1, '"': 2 }],
  ['{"s":[],"ab\\\\":0}', '{"s":1,"ab\\n":2}', { s: 1, 'ab\n': 2 }],
  [
    '{"n":[],"\\\\":0}',
    '{"n":{"n":1,"\\"":[{"n":2,"\\t":3}]},"\\r":"{"}',
    { n: { n: 1, '"': [{ n: 2, '\t': 3 }] }, '\r': '{' },
  ],
])('what was parsed before, as %s, changes no key of %s', (before, text, value) => {
  // Read by the platform's parser itself, as anybody in the process may.
  for (let n = 0; n < 3; n += 1) JSON.parse(before)

  expect(parseJson(text)).toEqual(value)
})

const key = fc.oneof(
  fc.constantFrom('"', '\\', '\n', 'a', 'ab\\', 'ab"', '__proto__', 'o', '{}:,[]', '\\"', ''),
  fc.string({ unit: 'binary' }),
)
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.oneof(key, fc.integer(), fc.boolean(), fc.constant(null)),
    fc.array(tie('value'), { maxLength: 5 }),
    fc.dictionary(key, tie('value'), { maxKeys: 5, noNullPrototype: true }),
  ),
}))

test('every value is read as it was written, whatever was read before, with spaces or without', () => {
  fc.assert(
    fc.property(value, fc.constantFrom(undefined, 1, '\t'), (given, space) => {
      expect(parseJson(JSON.stringify(given, null, space))).toStrictEqual(given)
    }),
    { numRuns: 2_000 },
  )
})

test('a key that is __proto__ is a key, and of two equal keys the last one stands', () => {
  const read = parseJson('{"\\u005f_proto__":{"x":1},"\\"":1,"a":2,"\\"":3}') as object

  expect(Object.entries(read)).toEqual([
    ['__proto__', { x: 1 }],
    ['"', 3],
    ['a', 2],
  ])
  expect(Object.getPrototypeOf(read)).toBe(Object.prototype)
})

test('an escaped key is read at any depth that the parser takes', () => {
  const depth = 20_000
  const text = `${'{"a\\n":['.repeat(depth)}1${']}'.repeat(depth)}`

  let read = parseJson(text)

  // Not by a comparison as a whole, which calls itself for each level.
  for (let level = 0; level < depth; level += 1) read = (read as { 'a\n': unknown[] })['a\n'][0]
  expect(read).toBe(1)
})

test.each(['{"\\"",1}', '{"a\\"":1', '["\\"":1]', '"\\', '', '{"\\"":1}}', '{"\\"":[1:2]}'])(
  '%j is refused, as by JSON.parse',
  (text) => {
    expect(() => parseJson(text)).toThrow(SyntaxError)
  },
)

test.each([
  ['escapes in values', { 'the "key"': '\\"\n'.repeat(350_000), b: '\\'.repeat(500_000) }],
  ['texts before the first escape', { list: Array.from({ length: 200_000 }, () => 'text'), '"': 1 }],
  ['keys with escapes', { list: Array.from({ length: 50_000 }, (_, index) => ({ [`"${index}"`]: index })) }],
])('a megabyte of %s is read in the time of a megabyte', (_, given) => {
  const begun = performance.now()

  expect(parseJson(JSON.stringify(given))).toEqual(given)

  // A search that began anew at each of them would take minutes.
  expect(performance.now() - begun).toBeLessThan(20_000)
})
