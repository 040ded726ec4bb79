/** The hash is Kafka's own. */
import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { LANE_COUNT, laneOf, murmur2, partitionOf } from '../../../src/messaging/outbox/lane.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'

// Made by Kafka's Java client; Murmur2Keys.java beside it says how.
const golden = (await readFile(new URL('fixtures/murmur2-keys.tsv', import.meta.url), 'utf8'))
  .trimEnd()
  .split('\n')
  .map((line) => {
    const [key = '', hash, partition] = line.split('\t')
    return { key: Buffer.from(key, 'base64').toString('utf8'), hash: Number(hash), partition: Number(partition) }
  })

test('hashes a thousand keys as the Java client does (PC-06)', () => {
  expect(golden).toHaveLength(1_000)
  expect(golden.map(({ key }) => murmur2(key))).toEqual(golden.map(({ hash }) => hash))
})

test('places a thousand keys as the Java client does (PC-06)', () => {
  expect(golden.map(({ hash }) => partitionOf(hash, 12))).toEqual(golden.map(({ partition }) => partition))
})

test('feeds a partition of a topic with eight from the same lanes always', () => {
  const partitionByLane = new Map<number, number>()
  for (const { hash } of golden) {
    const lane = laneOf(hash)
    const partition = partitionOf(hash, 8)
    expect(partitionByLane.get(lane) ?? partition).toBe(partition)
    partitionByLane.set(lane, partition)
  }
  expect(partitionByLane.size).toBe(LANE_COUNT)
})

test('a release with another number of lanes is refused by the tables, and a row keeps its whole hash (PC-18)', async () => {
  await using database = await createTestDatabase()
  const { db } = database
  await inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced', 'order-1')]))

  expect(await db('outbox').first('lane', 'key_hash')).toEqual({
    lane: laneOf(murmur2('order-1')),
    key_hash: murmur2('order-1'),
  })
  expect(await db('lane_leases').orderBy('lane').pluck('lane')).toEqual(
    Array.from({ length: LANE_COUNT }, (_, lane) => lane),
  )
  await expect(db('outbox').update({ lane: LANE_COUNT })).rejects.toMatchObject({ code: '23514' })
  await expect(db('lane_leases').insert({ lane: LANE_COUNT })).rejects.toMatchObject({ code: '23514' })
})
