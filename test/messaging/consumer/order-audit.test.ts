import { expect, test } from '@jest/globals'
import type { Logger } from '../../../src/messaging/lifecycle/logger.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { recordOf, TOPIC } from './scripted-subscriber.ts'
import { createSetting, writeEffect } from './setting.ts'

/** A logger that keeps what the audit says. */
function createEar(): { logger: Logger; heard: { kind: string; version: number; last_version: number }[] } {
  const heard: { kind: string; version: number; last_version: number }[] = []
  const warn = (fields: object) => {
    if ('kind' in fields) {
      const { kind, version, last_version } = fields as (typeof heard)[number]
      heard.push({ kind, version, last_version })
    }
  }
  return { logger: { ...silentLogger, warn }, heard }
}

const versioned = (offset: number, key: string, version: number, type = 'OrderPlaced') =>
  recordOf(offset, { key, type, headers: { aggregate_version: String(version) } })

test('versions that follow each other are silent, also over types without handler, copies and redeliveries', async () => {
  const { logger, heard } = createEar()
  await using setting = await createSetting(writeEffect, { logger })
  const records = [
    versioned(0, 'a', 7),
    versioned(1, 'b', 1),
    versioned(2, 'a', 8, 'OrderTeleported'),
    versioned(3, 'a', 9),
    versioned(4, 'a', 10, 'OrderTeleported'),
  ]

  await setting.subscriber.deliver(records)
  await setting.subscriber.deliver(records)
  await setting.subscriber.deliver([versioned(5, 'a', 11)])

  expect(heard).toEqual([])
})

test('a gap and a reversal are told, and nothing waits for them', async () => {
  const { logger, heard } = createEar()
  await using setting = await createSetting(writeEffect, { logger })

  await setting.subscriber.deliver([versioned(0, 'a', 1), versioned(1, 'a', 3), versioned(2, 'a', 2)])

  expect(heard).toEqual([
    { kind: 'gap', version: 3, last_version: 1 },
    { kind: 'reversal', version: 2, last_version: 3 },
  ])
  expect(await setting.effects()).toHaveLength(3)
})

test('a partition that is assigned anew begins afresh, as another member may have had it', async () => {
  const { logger, heard } = createEar()
  await using setting = await createSetting(writeEffect, { logger })
  await setting.subscriber.deliver([versioned(0, 'a', 1)])

  await setting.subscriber.startOffset({ topic: TOPIC, partition: 0 })
  await setting.subscriber.deliver([versioned(5, 'a', 6)])

  expect(heard).toEqual([])
})
