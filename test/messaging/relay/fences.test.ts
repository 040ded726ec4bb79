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
  const { db, source, event } = scene
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
  const { db, source, event, key, keyOwnership: stale } = scene
  await db('relay_workers').delete()
  const successor = only(await claimAll(db), key.lane)
  await source.hold(successor, key, { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 0, park: false })
  await source.settle(successor, [event])

  expect(await source.releaseKey(stale, key)).toBe(false)
  expect(await source.heldKeys([key.lane])).toHaveLength(1)
  expect(await source.releaseKey(successor, key)).toBe(true)
})

test('what is marked as published while its key is being held is not held with it', async () => {
  await using scene = await createScene()
  const { db, source, event, key, keyOwnership } = scene
  const marked = Promise.withResolvers<void>()
  const commit = Promise.withResolvers<void>()

  const mark = db.transaction(async (trx) => {
    await trx('outbox')
      .where({ id: event.id })
      .update({ published_at: trx.raw('clock_timestamp()') })
    marked.resolve()
    await commit.promise
  })
  await marked.promise
  const holding = source.hold(keyOwnership, key, { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 0, park: false })
  await Promise.race([holding, untilLockWait(db)])
  commit.resolve()
  await mark

  expect(await holding).toEqual({ changed: 0, fencedLanes: [] })
  expect(await db('outbox').select('held')).toEqual([{ held: false }])
})

test('a row that is marked and held, from whatever release, is not sent, and keeps no key', async () => {
  await using scene = await createScene()
  const { db, source, event, key, keyOwnership } = scene
  await source.hold(keyOwnership, key, { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 0, park: true })
  await db('held_keys').update({ request: 'skip' })
  await db('outbox').update({ held: true, published_at: db.raw('clock_timestamp()') })

  expect(await source.readHeld(key, { count: 10, bytes: 1_000 })).toEqual([])
  expect(
    (await source.skip(keyOwnership, key, { eventId: event.id, published: false, longestWaitMs: 600_000 })).changed,
  ).toBe(0)
  expect(await source.releaseKey(keyOwnership, key)).toBe(true)
})

test('a key of which an event becomes held at the same moment is kept, whatever isolation is the default', async () => {
  await using scene = await createScene()
  const { db, source, event, key, keyOwnership } = scene
  await source.hold(keyOwnership, key, { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 0, park: false })
  await source.settle(keyOwnership, [event])
  await inTransaction(db, (trx) => appendToOutbox(trx, [orderEvent('OrderShipped', event.aggregate.id)]))
  await db.raw(`do $$ begin execute format(
    'alter database %I set default_transaction_isolation to ''repeatable read''', current_database()); end $$`)
  const strict = scene.createPool()
  const followed = Promise.withResolvers<void>()
  const commit = Promise.withResolvers<void>()

  const following = db.transaction(async (trx) => {
    await trx.raw('select 1 from held_keys for update')
    await trx('outbox').whereNull('published_at').update({ held: true })
    followed.resolve()
    await commit.promise
  })
  await followed.promise
  const releasing = createPostgresSource({ db: strict, topicFor: () => TOPIC }).releaseKey(keyOwnership, key)
  await Promise.race([releasing, untilLockWait(db)])
  commit.resolve()
  await following

  expect(await releasing).toBe(false)
  expect(await source.heldKeys([key.lane])).toHaveLength(1)
})

test('under another topic rule what a key has held is pending again once the key is let go', async () => {
  await using scene = await createScene()
  const { db, source, event, key, keyOwnership } = scene
  await source.hold(keyOwnership, key, { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 0, park: false })
  const renamed = createPostgresSource({ db, topicFor: () => 'shop.order.events' })

  expect(await renamed.readHeld(key, { count: 10, bytes: 1_000 })).toEqual([])
  expect(await renamed.releaseKey(keyOwnership, key)).toBe(true)
  expect((await scene.pending()).map(({ id }) => id)).toEqual([event.id])
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
  const pending = async () => await source.read(ownership, request)
  const [event] = await pending()
  if (!event) throw new Error('Nothing is pending')
  const key = { lane: event.lane, topic: TOPIC, aggregateType: 'order', aggregateId: event.aggregate.id }
  return {
    db,
    source,
    ownership,
    event,
    key,
    keyOwnership: only(ownership, key.lane),
    createPool: () => database.createPool(),
    pending,
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
