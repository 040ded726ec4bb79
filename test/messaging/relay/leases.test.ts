import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { resolveRelaySettings } from '../../../src/messaging/relay/options.ts'
import type { FromWorker, ToWorker } from '../../../src/messaging/relay/protocol.ts'
import { type Relay, superviseRelay } from '../../../src/messaging/relay/relay.ts'
import type { WorkerHandle } from '../../../src/messaging/relay/spawn.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { eventually } from '../../../src/messaging/testing/index.ts'
import { idleReport } from '../../support/relay/idle-report.ts'
import { quick } from './setting.ts'

const LANES = Array.from({ length: 64 }, (_, lane) => lane)

test('a worker hears what it has lost before it hears that its leases stand', async () => {
  const outbox = new InMemoryOutbox({ clock: systemClock, hash: murmur2, topicFor: defaultTopicFor('') })
  const heard: ToWorker[] = []
  const owner = randomUUID()
  await using _relay = relayOf(outbox, owner, listeningWorker(heard))
  await eventually('it has all lanes', () => outbox.lanes.every((lane) => lane.owner === owner))
  const thief = randomUUID()
  // All at once, between two renewals.
  outbox.expire(owner)
  const taken = Promise.all([outbox.renew([thief], 60_000), outbox.claim(thief, LANES)])
  const before = heard.length
  await taken
  await eventually('it is told', () => heard.slice(before).some(({ kind }) => kind === 'renewed'))

  expect(heard.slice(before, before + 2)).toEqual([
    { kind: 'lanes', owner, grants: [] },
    { kind: 'renewed', term: { until: expect.any(Number), untilTime: expect.any(Number) } },
  ])
})

test('a worker that drains hears what it has lost: another may be sending there by now', async () => {
  const outbox = new InMemoryOutbox({ clock: systemClock, hash: murmur2, topicFor: defaultTopicFor('') })
  const heard: ToWorker[] = []
  const owner = randomUUID()
  const busy = Promise.withResolvers<void>()
  const relay = relayOf(outbox, owner, listeningWorker(heard, busy.promise))
  await eventually('it has all lanes', () => outbox.lanes.every((lane) => lane.owner === owner))
  const stopped = relay.stop()
  await eventually('it drains', () => heard.some(({ kind }) => kind === 'drain'))
  const thief = randomUUID()
  outbox.expire(owner)
  const taken = Promise.all([outbox.renew([thief], 60_000), outbox.claim(thief, [7])])
  const before = heard.length
  await taken
  await eventually('it is told', () => heard.slice(before).some(({ kind }) => kind === 'renewed'))
  busy.resolve()
  await stopped

  const [told, renewed] = heard.slice(before)
  if (told?.kind !== 'lanes') throw new Error(`It was told ${told?.kind} first`)
  expect(told.grants.map(({ lane }) => lane)).toEqual(LANES.filter((lane) => lane !== 7))
  expect(renewed?.kind).toBe('renewed')
})

/** A relay with one worker. */
function relayOf(outbox: InMemoryOutbox, owner: string, worker: WorkerHandle): Relay {
  return superviseRelay({
    directory: outbox,
    listener: () => ({ listening: true, run: async () => {} }),
    spawn: () => worker,
    count: 1,
    createOwner: () => owner,
    settings: resolveRelaySettings(quick),
    logger: silentLogger,
    clock: systemClock,
  })
}

/** A worker that does nothing but live, and ends when it is told to drain and is no longer busy. */
function listeningWorker(heard: ToWorker[], busy: Promise<void> = Promise.resolve()): WorkerHandle {
  const ended = Promise.withResolvers<null>()
  let say: (message: FromWorker) => void = () => {}
  return {
    line: {
      post: (message) => {
        heard.push(message)
        if (message.kind === 'drain') void busy.then(() => ended.resolve(null))
        else if (message.kind === 'renewed') say({ kind: 'heartbeat', report: idleReport })
      },
      listen: (listener) => {
        say = listener
        queueMicrotask(() => listener({ kind: 'ready' }))
      },
      close: () => {},
    },
    ended: ended.promise,
    terminate: async () => ended.resolve(null),
  }
}
