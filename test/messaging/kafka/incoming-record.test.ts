import { expect, test } from '@jest/globals'
import { toIncomingRecord } from '../../../src/messaging/kafka/incoming-record.ts'

test.each([
  ['1760000000000', '2025-10-09T08:53:20.000Z'],
  ['-1', '1969-12-31T23:59:59.999Z'],
  ['9223372036854775807', '9999-12-31T23:59:59.999Z'],
  ['-9223372036854775808', '0001-01-01T00:00:00.000Z'],
])('a record with the time %s has one that can be stored', (timestamp, expected) => {
  const record = { offset: '0', timestamp, key: null, value: null, attributes: 0, size: 0 }

  expect(toIncomingRecord(record).timestamp.toISOString()).toBe(expected)
})
