/** Properties of what is stored, over values that nobody would think of. */
import { isDeepStrictEqual } from 'node:util'
import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { parseJson } from '../../../src/messaging/json.ts'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

const refused = (json: string) => /\\u0000|\\ud[89a-f]/i.test(json)
const storable = (text: string) => text.isWellFormed() && !text.includes('\0')
const anyText = fc.string({ unit: 'binary', maxLength: 40 })
const hostileText = fc.constantFrom(
  "'; drop table outbox; --",
  '$1',
  '?',
  ':id',
  '{NULL}',
  '"',
  '\\',
  '__proto__',
  'NULL',
)
const text = fc.oneof(anyText, hostileText)

test('sends every JSON value that Postgres can store as it was given', async () => {
  await using database = await createTestDatabase()
  const value = fc.oneof(fc.jsonValue({ stringUnit: 'binary' }), fc.dictionary(text, text))

  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ value, id: text, header: text }), { minLength: 1, maxLength: 20 }),
      async (given) => {
        const events = given
          .filter(({ id, header }) => id !== '' && storable(id) && storable(header))
          .filter(({ value }) => !refused(JSON.stringify(value)))
          .map(({ value, id, header }) => orderEvent('OrderPlaced', id, { payload: value, headers: { text: header } }))

        const envelopes = await inTransaction(database.db, (trx) => appendToOutbox(trx, events))

        for (const [index, { payload, aggregate, headers }] of envelopes.entries()) {
          const event = events[index]
          const sent = payload === null ? null : parseJson(payload)
          expect(isDeepStrictEqual(sent, parseJson(JSON.stringify(event?.payload)))).toBe(true)
          expect([aggregate, headers]).toEqual([event?.aggregate, event?.headers])
        }
        const rows = await database
          .db('outbox')
          .whereIn(
            'id',
            envelopes.map(({ id }) => id),
          )
          .orderBy('seq')
          .select('aggregate_id', 'headers')
        expect(rows).toEqual(events.map(({ aggregate, headers }) => ({ aggregate_id: aggregate.id, headers })))
      },
    ),
    { numRuns: 40 },
  )
})
