import { runInNewContext } from 'node:vm'
import { expect, test } from '@jest/globals'
import { stackFrames } from '../../../src/messaging/telemetry/stack-frames.ts'

const CANARY = 'canary4711'
/** As Postgres quotes a value: some of its lines look like frames. */
const SAID = `invalid input: "x\n  at ${CANARY}:1\n    at pay (/srv/${CANARY}.ts:12:5)\n    at /srv/${CANARY}.ts:1:2\n"`
const HERE = 'stack-frames.test.ts'

class Nameless extends Error {
  static {
    Object.defineProperty(Nameless.prototype, 'name', { value: '' })
  }
}

/** An error that has its stack already, and then another message. */
function saidAnew(message: (before: string) => string): Error {
  const error = new Error(SAID)
  // Made when it is read first.
  expect(error.stack).toContain(CANARY)
  error.message = message(error.message)
  return error
}

/** As Knex makes the stack of a statement's error anew where it is to remember who made that. */
function remembered(): Error {
  const error = saidAnew((before) => `select ? - ${before}`)
  error.stack = [error.stack?.split('\n')[0], ...(new Error('').stack?.split('\n').slice(1) ?? [])].join('\n')
  return error
}

/** As the SDK records an exception, and as plain JavaScript may throw anything. */
function plain(given: object): Error {
  return given as Error
}

test.each<[string, () => Error]>([
  ['as it was made', () => new TypeError(SAID)],
  ['with another name since', () => Object.assign(new Error(SAID), { name: 'PaymentRefused' })],
  ['without a name', () => new Nameless(SAID)],
  ['of many errors', () => new AggregateError([new Error(SAID)], SAID)],
  ['with a cause', () => new Error('no', { cause: new Error(SAID) })],
  ['without a message', () => new Error('')],
  ['of another realm', () => runInNewContext('new Error(said)', { said: SAID })],
  ['with the statement before its message, as Knex has it', () => saidAnew((before) => `select a - b, ? - ${before}`)],
])('of an error %s only where it was thrown is taken', (_how, make) => {
  const frames = stackFrames(make()).join('\n')

  expect(frames).toContain(HERE)
  expect(frames).not.toContain(CANARY)
})

test.each<[string, () => Error]>([
  ['was replaced', () => saidAnew(() => 'no')],
  ['was shortened to its first line', () => saidAnew((before) => before.slice(0, before.indexOf('\n')))],
  ['was taken away', () => saidAnew(() => '')],
  ['is in its stack by its first line alone', remembered],
  ['is no text', () => Object.assign(new Error(SAID), { message: 5 })],
  ['cannot be read', () => Object.defineProperty(new Error(SAID), 'message', { get: () => fail() })],
])('nothing is taken of the stack of an error whose message %s', (_how, make) => {
  expect(stackFrames(make())).toEqual([])
})

test.each<[string, () => Error]>([
  ['is no text', () => Object.assign(new Error('no'), { stack: [] as unknown as string })],
  ['cannot be read', () => Object.defineProperty(new Error('no'), 'stack', { get: () => fail() })],
  ['is not there', () => plain({ message: 'no' })],
  ['is behind a proxy', () => new Proxy(new Error('no'), { get: () => fail() })],
])('nothing is taken of a stack that %s', (_how, make) => {
  expect(stackFrames(make())).toEqual([])
})

test('a frame is a line with a file in it, as V8 writes them, and nothing that a terminal obeys', () => {
  const frames = [
    '    at charge (/srv/app/orders.ts:12:5)',
    '    at async /srv/app/orders.ts:12:5',
    '    at new Order (file:///srv/app/order.ts:1:2)',
    '    at Object.<anonymous> [as ship] (C:\\srv\\app\\orders.ts:12:5)',
    '    at node:internal/timers:614:7',
  ]
  const others = [
    '    at Array.map (<anonymous>)',
    '    at async Promise.all (index 0)',
    `    at ${CANARY}:1`,
    '    at /srv/app/4111111111111111:4111111111111111',
    '    at \u001b[31m (/srv/app/orders.ts:12:5)',
    '    at /srv/app/or\0ders.ts:12:5',
  ]

  expect(stackFrames({ message: 'no', stack: ['Error: no', ...frames, ...others].join('\n') })).toEqual(frames)
  expect(stackFrames({ message: '', stack: ['AggregateError [ECONNREFUSED]: ', ...frames].join('\n') })).toEqual(frames)
})

function fail(): never {
  throw new Error('It cannot be looked at')
}
