/** A relay worker that owns every lane, without a relay that renews or takes anything: a test says what becomes of its leases. */
import { randomUUID } from 'node:crypto'
import type { Clock } from '../../../src/messaging/lifecycle/clock.ts'
import { silentLogger } from '../../../src/messaging/lifecycle/logger.ts'
import { defaultTopicFor } from '../../../src/messaging/outbox/topic-rule.ts'
import { inlineLine } from '../../../src/messaging/relay/line.ts'
import { runWorker } from '../../../src/messaging/relay/worker.ts'
import type { AdoptedTopic } from '../../../src/messaging/source.ts'
import type { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import type { Publisher } from '../../../src/messaging/transport.ts'

const LANES = Array.from({ length: 64 }, (_, lane) => lane)

export interface LoneWorker {
  /** Tells it that lanes have something new. */
  wake(lanes: readonly number[]): void
  /** Tells it of topics whose partition count is being changed. */
  tellTopics(topics: readonly AdoptedTopic[]): void
  /** All of its lanes are lost, and are its own again under other leases. */
  loseAndRegain(): Promise<void>
  /** All of its lanes are somebody else's, and it does not hear of that. */
  rob(): Promise<void>
  stop(): Promise<void>
  /** Ends it without patience: what is in hand is left. */
  cancel(): Promise<void>
}

/** Starts it. Its leases are certain for ever. */
export async function startLoneWorker(
  outbox: InMemoryOutbox,
  { publisher, clock }: { publisher: Publisher; clock: Clock },
): Promise<LoneWorker> {
  const owner = randomUUID()
  const claim = async () => {
    const grants = await outbox.claim(owner, LANES)
    await outbox.renew([owner], 600_000)
    line.relay.post({ kind: 'lanes', owner, grants })
  }
  const line = inlineLine()
  line.relay.listen(() => {})
  const running = runWorker({
    line: line.worker,
    source: outbox,
    registry: outbox,
    publisher,
    topicFor: defaultTopicFor(''),
    createTopics: null,
    settings: {},
    logger: silentLogger,
    clock,
  })
  await claim()
  line.relay.post({
    kind: 'renewed',
    term: { until: Number.POSITIVE_INFINITY, untilTime: Number.POSITIVE_INFINITY },
  })
  return {
    wake: (lanes: readonly number[]) => line.relay.post({ kind: 'wake', lanes }),
    tellTopics: (topics) => line.relay.post({ kind: 'topics', topics }),
    loseAndRegain: async () => {
      line.relay.post({ kind: 'lanes', owner, grants: [] })
      outbox.expire(owner)
      await claim()
    },
    rob: async () => {
      outbox.expire(owner)
      await outbox.claim(randomUUID(), LANES)
    },
    cancel: async () => {
      line.relay.post({ kind: 'cancel' })
      await running
    },
    stop: async () => {
      line.relay.post({ kind: 'drain' })
      await running
    },
  }
}
