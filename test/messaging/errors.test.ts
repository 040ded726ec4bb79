import { expect, test } from '@jest/globals'
import { InvalidOptionError } from '../../src/messaging/errors.ts'
import { createKafkaPublisher } from '../../src/messaging/kafka/index.ts'

test.each([
  [[], 'an empty list'],
  [['a', 'b'], 'a list of 2'],
  [{ password: 'secret' }, 'an object'],
  [null, 'null'],
  [undefined, 'undefined'],
  ['', '""'],
  [-1, '-1'],
])('an option that cannot be used is shown so that something is seen, and no contents: %j', (value, shown) => {
  expect(new InvalidOptionError('name', value, 'right').message).toBe(`Option name must be right; it is ${shown}`)
})

test('a publisher without brokers is refused with the rule and what was given', () => {
  expect(() => createKafkaPublisher({ brokers: [], clientId: 'test' })).toThrow(
    'Option brokers must be at least one host:port; it is an empty list',
  )
})
