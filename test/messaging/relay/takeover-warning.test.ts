/** When the log tells of lanes whose owner vanished: at the claim that takes them from it, and at no other. */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { createRelaySetting, owns } from './setting.ts'

test('a takeover is told once, and not again of lanes that were handed back with their count', async () => {
  await using setting = await createRelaySetting()
  await setting.db('lane_leases').whereIn('lane', [1, 2, 3]).update({ crashes: 1 })
  // Lane 3 alone has an owner, and one that no longer lives.
  await setting.db('lane_leases').where({ lane: 3 }).update({ owner: randomUUID() })
  const told: unknown[] = []
  const warn = (fields: object, message: string) => void told.push([fields, message])
  const relay = setting.start({ logger: { ...silentLogger, warn } })

  await owns(relay, 64)
  await relay.stop()

  expect(told).toEqual([[{ worker: 0, laneCount: 1, lanes: [3] }, 'Lanes taken over from a worker that vanished']])
})
