import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import { systemClock } from '../../../src/messaging/lifecycle/clock.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { type AppendedEvent, InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { type SourceUnderTest, sourceContract, type TestEvent } from '../relay/source-contract.ts'

sourceContract('the outbox in memory', async (): Promise<SourceUnderTest> => {
  const outbox = new InMemoryOutbox({ clock: systemClock, hash: murmur2, topicFor: defaultTopicFor('') })
  return {
    source: outbox,
    directory: outbox,
    topics: outbox,
    async appendOpen(events) {
      const open = outbox.appendOpen(events.map(toAppended))
      return { commit: async () => open.commit() }
    },
    expire: async (owner) => outbox.expire(owner),
    request: async (key, request) => outbox.request(key, request),
    skipped: async () => outbox.skipped.map(({ id }) => id),
    [Symbol.asyncDispose]: async () => {},
  }
})

test('lets a call take effect and lose its answer', async () => {
  const outbox = new InMemoryOutbox({
    clock: systemClock,
    hash: murmur2,
    topicFor: defaultTopicFor(''),
    async around(call, apply) {
      const result = apply()
      if (call === 'settle') throw new Error('the answer is lost')
      return result
    },
  })
  const events = outbox.append([toAppended({ type: 'order', id: 'a' })])
  const owner = randomUUID()
  await outbox.renew([owner], 5_000)
  const leases = await outbox.claim(owner, [events[0]?.lane ?? -1])

  await expect(outbox.settle({ owner, leases }, events)).rejects.toThrow('the answer is lost')
  expect(outbox.pendingCount).toBe(0)
  expect(outbox.marks).toMatchObject([{ owner, leaseOwner: owner }])
})

function toAppended({ type, id, payload = '{}', topic }: TestEvent): AppendedEvent {
  return {
    id: randomUUID(),
    type: 'OrderPlaced',
    aggregate: { type, id },
    version: null,
    payload,
    occurredAt: new Date(),
    headers: {},
    trace: null,
    topic: topic ?? null,
  }
}
