/** Fences that only show when two owners of a lane meet, on Postgres. */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import type { Knex } from 'knex'
import { appendToOutbox } from '../../../src/messaging/outbox/append.ts'
import { inTransaction } from '../../../src/messaging/outbox/transaction.ts'
import { createPostgresDirectory, createPostgresSource } from '../../../src/messaging/relay/postgres-source.ts'
import type { Ownership } from '../../../src/messaging/source.ts'
import { createTestDatabase } from '../../support/database.ts'
import { orderEvent } from '../../support/events.ts'
import { untilLockWait } from '../../support/sessions.ts'

const LANES = Array.from({ length: 64 }, (_, lane) => lane)
const TOPIC = 'order.events'

test('a mark that meets a takeover under way waits for it, and changes nothing', async () => {
  await using scene = await createScene()
  const { db, source } = scene
  const [event] = await scene.pending()
  if (!event) throw new Error('Nothing is pending')
  const takingOver = Promise.withResolvers<void>()
  const commit = Promise.withResolvers<void>()

  const takeover = db.transaction(async (trx) => {
    await trx('lane_leases').update({ owner: randomUUID(), token: trx.raw('token + 1') })
    takingOver.resolve()
    await commit.promise
  })
  await takingOver.promise
  const settling = source.settle(scene.ownership, [event])
  await Promise.race([settling, untilLockWait(db)])
  commit.resolve()
  await takeover

  expect(await settling).toMatchObject({ changed: 0, fencedLanes: expect.arrayContaining([event.lane]) })
  expect(await db('outbox').whereNull('published_at')).toHaveLength(1)
})

test('a worker that has lost its lane lets no key go that its successor holds', async () => {
  await using scene = await createScene()
  const { db, source } = scene
  const [event] = await scene.pending()
  if (!event) throw new Error('Nothing is pending')
  const key = { lane: event.lane, topic: TOPIC, aggregateType: 'order', aggregateId: event.aggregate.id }
  const stale = only(scene.ownership, key.lane)
  await db('relay_workers').delete()
  const successor = only(await claimAll(db), key.lane)
  await source.hold(successor, key, { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 0, park: false })
  await source.settle(successor, [event])

  expect(await source.releaseKey(stale, key)).toBe(false)
  expect(await source.heldKeys([key.lane])).toHaveLength(1)
  expect(await source.releaseKey(successor, key)).toBe(true)
})

/** One pending event, and an owner of all lanes. */
async function createScene() {
  const database = await createTestDatabase()
  const { db } = database
  const source = createPostgresSource({ db, topicFor: () => TOPIC })
  await inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderPlaced')]))
  const ownership = await claimAll(db)
  const request = {
    lanes: LANES.map((lane) => ({ lane, limit: 10 })),
    maxBytesPerLane: 1_000,
    inHand: [],
    exclusions: [],
  }
  return {
    db,
    source,
    ownership,
    pending: async () => await source.read(ownership, request),
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  }
}

async function claimAll(db: Knex): Promise<Ownership> {
  const directory = createPostgresDirectory(db)
  const owner = randomUUID()
  await directory.renew([owner], 60_000)
  return { owner, leases: await directory.claim(owner, LANES) }
}

/** The lease of one lane, as writes on a single key present it. */
function only({ owner, leases }: Ownership, lane: number): Ownership {
  return { owner, leases: leases.filter((lease) => lease.lane === lane) }
}
