import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { type Clock, systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { createSetting, writeEffect } from './setting.ts'

/** Pauses for milliseconds where the system's clock pauses for seconds. */
const hasty: Clock = { ...systemClock, pause: (ms, signal) => systemClock.pause(Math.min(ms, 5), signal) }

/** A logger that keeps what it is told, and says when there is more. */
function keepLog() {
  const lines: unknown[] = []
  let heard = Promise.withResolvers<void>()
  const write = (level: string) => (fields: object, message: string) => {
    lines.push([level, { ...fields }, message])
    heard.resolve()
    heard = Promise.withResolvers()
  }
  return {
    logger: { ...silentLogger, info: write('info'), warn: write('warn') },
    lines,
    async untilLines(count: number) {
      while (lines.length < count) await heard.promise
    },
  }
}

test("a subscription that fails is told by the consumer's own logger, each reason once, and so is its end", async () => {
  const log = keepLog()
  const unreachable = { phase: 'failing', reason: 'Kafka cannot be reached' } as const
  const missing = { phase: 'failing', reason: 'Topic order.events does not exist' } as const
  await using setting = await createSetting(writeEffect, { logger: log.logger, clock: hasty })

  setting.subscriber.phase = unreachable
  await log.untilLines(1)
  expect(setting.subscriber.looks).toBeGreaterThanOrEqual(3)
  setting.subscriber.phase = missing
  await log.untilLines(2)
  setting.subscriber.phase = unreachable
  for (const before = setting.subscriber.looks; setting.subscriber.looks < before + 5; ) await sleep(5)
  setting.subscriber.phase = { phase: 'running', reason: null }
  await log.untilLines(3)

  const fails = 'The subscription fails; it is tried again until it works'
  expect(log.lines).toEqual([
    ['warn', { consumer: 'summary', reason: unreachable.reason }, fails],
    ['warn', { consumer: 'summary', reason: missing.reason }, fails],
    ['info', { consumer: 'summary' }, 'The subscription works again'],
  ])
})
