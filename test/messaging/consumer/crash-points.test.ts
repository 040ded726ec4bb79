/** Ends a consumer at every one of its statements, before it is sent and after it was answered, and starts another. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import type { Handler } from '../../../src/messaging/consumer/handlers.ts'
import { listDeadLetters, listHeldKeys } from '../../../src/messaging/dead-letters/list.ts'
import { requestResume } from '../../../src/messaging/dead-letters/requests.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import type { IncomingRecord } from '../../../src/messaging/transport.ts'
import { createCrashingPool } from './crashing-pool.ts'
import { recordOf, TOPIC } from './scripted-subscriber.ts'
import { createSetting, idOf, joinSetting, type Setting, writeEffect } from './setting.ts'

const KEY = { holder: 'summary', topic: TOPIC, aggregateType: 'order', aggregateId: 'a' }
const options = { maxAttempts: 2, graceMs: 100 }
/** More statements than any run has. */
const LIMIT = 80

/** Writes the effect; refuses a bad event as long as the table `refusals` has a row. */
const handler: Handler = async (trx, event) => {
  const { bad } = event.payload as { bad?: boolean }
  if (bad && (await trx('refusals')).length > 0) throw new RangeError('refused')
  await writeEffect(trx, event)
}

const bad = (offset: number, key: string) => recordOf(offset, { key, value: '{"bad":true}' })
const good = (offset: number, key: string) => recordOf(offset, { key })

/** A setting whose own consumer does nothing: the test starts others. */
async function createScene(): Promise<Setting> {
  const setting = await createSetting()
  await setting.consumer.stop()
  await setting.db.raw('create table refusals (reason text)')
  return setting
}

/** Runs a consumer until it is through or has crashed; resolves to whether it has. */
async function runUntilCrash(
  scene: Setting,
  at: number,
  when: 'before' | 'after',
  work: (setting: Setting, goOn: () => boolean) => Promise<void>,
): Promise<boolean> {
  const pool = createCrashingPool(scene.database, at, when)
  await using consumer = await joinSetting(scene, handler, { ...options, db: pool.db })
  await work(consumer, () => !pool.crashed)
  return pool.crashed
}

async function deliver(
  { subscriber }: Setting,
  records: readonly IncomingRecord[],
  goOn: () => boolean = () => true,
): Promise<void> {
  for (let rest = records; rest.length > 0 && goOn(); ) {
    const { nextOffset, pauseMs } = await subscriber.deliver(rest)
    rest = rest.filter(({ offset }) => offset >= nextOffset)
    if (rest.length > 0 && goOn()) await sleep(pauseMs)
  }
}

/** Starts a consumer on what a crash has left and lets it do `work`. */
async function recover(scene: Setting, work: (setting: Setting) => Promise<void>): Promise<void> {
  await using consumer = await joinSetting(scene, handler, options)
  await work(consumer)
}

/** Calls `check` for one crash point after the other, until none is reached; resolves to how many were. */
async function atEveryPoint(check: (at: number, when: 'before' | 'after') => Promise<boolean>): Promise<number> {
  let points = 0
  for (const when of ['before', 'after'] as const) {
    for (let at = 1; at < LIMIT && (await check(at, when)); at += 1) points += 1
  }
  return points
}

async function allLetGo(scene: Setting, goOn: () => boolean = () => true): Promise<void> {
  await eventually('every key is let go', async () => !goOn() || (await listHeldKeys(scene.database.db)).length === 0)
}

/** Empties the scene's tables: a database for each point would cost minutes. */
async function wipe({ database: { db } }: Setting): Promise<void> {
  await db.raw(
    'truncate effects, refusals, processed_events, consumer_offsets, held_keys, dead_letters, outbox restart identity',
  )
}

test('PC-50 F25: a batch whose consumer ends at any statement has each effect once and loses none', async () => {
  await using scene = await createScene()
  const points = await atEveryPoint(async (at, when) => {
    await wipe(scene)
    const records = [good(0, 'a'), good(1, 'b'), good(2, 'a')]

    const crashed = await runUntilCrash(scene, at, when, (consumer, goOn) => deliver(consumer, records, goOn))
    await recover(scene, (consumer) => deliver(consumer, records))

    expect(await scene.effects()).toEqual(records.map(idOf))
    return crashed
  })

  // Held keys, memory, three effects, the offset, begin and commit, before and after.
  expect(points).toBeGreaterThanOrEqual(16)
})

test('F25: a key whose consumer ends at any statement of its parking is parked once, with its event whole', async () => {
  await using scene = await createScene()
  const points = await atEveryPoint(async (at, when) => {
    await wipe(scene)
    await scene.db('refusals').insert({ reason: 'test' })
    const records = [bad(0, 'a'), good(1, 'b')] as const

    const crashed = await runUntilCrash(scene, at, when, (consumer, goOn) => deliver(consumer, records, goOn))
    await recover(scene, (consumer) => deliver(consumer, records))

    expect(await scene.effects()).toEqual([idOf(records[1])])
    expect(await listHeldKeys(scene.db)).toMatchObject([{ ...KEY, state: 'parked', eventId: idOf(records[0]) }])
    expect(await listDeadLetters(scene.db)).toMatchObject([{ state: 'dead', eventId: idOf(records[0]) }])
    expect(await scene.db('outbox').pluck('topic')).toEqual([`${TOPIC}.summary.dlq`])
    return crashed
  })

  expect(points).toBeGreaterThan(30)
})

test('F25: a redrive whose consumer ends at any statement applies each event once and in order', async () => {
  await using scene = await createScene()
  const points = await atEveryPoint(async (at, when) => {
    await wipe(scene)
    const records = [bad(0, 'a'), good(1, 'a'), good(2, 'a')]
    await scene.db('refusals').insert({ reason: 'test' })
    await recover(scene, (consumer) => deliver(consumer, records))
    await scene.db('refusals').delete()
    await requestResume(scene.db, KEY)

    const crashed = await runUntilCrash(scene, at, when, (_consumer, goOn) => allLetGo(scene, goOn))
    await recover(scene, () => allLetGo(scene))

    expect(await scene.effects()).toEqual(records.map(idOf))
    expect(await listDeadLetters(scene.db)).toEqual([])
    return crashed
  })

  expect(points).toBeGreaterThan(30)
})
