/**
 * One simulated run: writers append, relays publish, and a nemesis breaks what
 * it can, all from one seed. What is left is evidence for the checker.
 */
import { createHash } from 'node:crypto'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import {
  type CommittedEvent,
  type Evidence,
  type HistoryEntry,
  noEvidence,
  type ObservedRecord,
} from '../../../src/messaging/testing/history/evidence.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import { Nemesis } from './nemesis.ts'
import {
  resetOwners,
  type SimulatedRelay,
  type Surroundings,
  startSimulatedRelay,
  topicFor,
} from './simulated-relays.ts'
import { VirtualTime } from './virtual-time.ts'

export interface SimulationOptions {
  readonly seed: number
  /** @defaultValue 3 */
  readonly relays?: number
  /** @defaultValue 40 */
  readonly aggregates?: number
  /** Events of each aggregate. @defaultValue 15 */
  readonly eventsEach?: number
  /** Whether anything is broken at all. @defaultValue true */
  readonly faults?: boolean
}

/** What a run left, and what must not have happened. */
export interface SimulationResult {
  readonly evidence: Evidence
  /** Virtual milliseconds. */
  readonly lasted: number
  readonly defects: readonly string[]
}

/** Virtual milliseconds that everything has to calm down once nothing is broken any more. */
const CALM_MS = 180_000

export async function simulate(options: SimulationOptions): Promise<SimulationResult> {
  const { seed, relays: count = 3, aggregates = 40, eventsEach = 15, faults = true } = options
  resetOwners()
  const time = new VirtualTime(seed)
  const history: HistoryEntry[] = []
  const defects: string[] = []
  const committed: OutboxEvent[] = []
  let disturbances = 0
  const outbox = new InMemoryOutbox({ clock: time, hash: murmur2, topicFor })
  const broker = new InMemoryBroker({ clock: time, now: () => new Date(time.now()) })
  const partitionCount = time.pick([1, 3, 8])
  const nemesis = new Nemesis({ time, broker, outbox, history })
  const surroundings: Surroundings = {
    time,
    outbox,
    broker,
    partitionCount,
    batchSize: time.pick([2, 5, 50]),
    maxAttempts: time.pick([1, 2, 3]),
    databaseLatencyMs: time.pick([4, 4, 150]),
    deliveryTimeoutMs: time.pick([0, 0, 500, 2_000]),
    databaseFault: () => nemesis.databaseFault(),
    onUnknownOutcome: () => {
      disturbances += 1
    },
    onDefect: (problem) => defects.push(problem),
  }
  const relays: SimulatedRelay[] = Array.from({ length: count }, () => startSimulatedRelay(surroundings))
  nemesis.attach(relays, () => startSimulatedRelay(surroundings))

  const writers = Array.from({ length: aggregates }, (_, index) => write(`order-${index}`))
  const working = Promise.all(writers)
  let written = false
  void working.then(() => {
    written = true
  })
  if (faults) nemesis.begin()
  await time.passUntil(() => written, 3_600_000)
  nemesis.heal()
  const calm = await time.passUntil(() => outbox.pendingCount === 0 && nemesis.calm() && owned(), CALM_MS)
  if (!calm) defects.push(`it had not calmed down ${CALM_MS} ms after the last fault: ${outbox.pendingCount} pending`)

  return {
    lasted: time.now(),
    defects,
    evidence: {
      ...noEvidence,
      history,
      committed: committed.map(toCommitted),
      records: broker.records('order.events').map((record): ObservedRecord => {
        const { topic, partition, offset, key, id, type, value, headers } = record
        return {
          topic,
          partition,
          offset,
          key,
          id,
          type,
          version: Number(headers.aggregate_version),
          payloadHash: hashOf(value),
        }
      }),
      topics: [{ topic: 'order.events', partitionCounts: [partitionCount] }],
      setAside: outbox.skipped.map(({ id }) => ({ id, reason: 'skipped' })),
      skipped: outbox.skipped.map(({ id }) => id),
      marks: outbox.marks.map((mark) => ({ ...mark, id: mark.event.id })),
      final: { pending: outbox.pendingCount, lanes: outbox.lanes, liveOwners: outbox.liveOwners },
      disturbances: disturbances + nemesis.landed,
      faultsExpected: faults,
    },
  }

  function owned(): boolean {
    const live = new Set(outbox.liveOwners)
    return outbox.lanes.every(({ owner }) => owner !== null && live.has(owner))
  }

  /** One aggregate's commands, one after the other, as its lock makes them. */
  async function write(id: string): Promise<void> {
    let version = 0
    for (let command = 1; version < eventsEach; command += 1) {
      // Bursts and lulls: backlogs form, and are gone again.
      await time.pause(time.chance(0.6) ? time.between(0, 100) : time.between(0, 15_000))
      const amount = Math.min(time.between(1, 3), eventsEach - version)
      const operation = `${id}/${command}`
      const said = { actor: id, operation, name: 'append', aggregateId: id }
      history.push({ ...said, kind: 'invoke', at: time.now() })
      const open = outbox.appendOpen(Array.from({ length: amount }, (_, n) => eventOf(id, version + n + 1, operation)))
      await time.pause(time.between(0, 60))
      if (time.chance(0.05)) {
        history.push({ ...said, kind: 'fail', at: time.now() })
        continue
      }
      open.commit()
      version += amount
      committed.push(...open.events)
      history.push({ ...said, kind: 'ok', at: time.now(), eventIds: open.events.map((event) => event.id) })
      if (time.chance(0.8)) for (const relay of relays) relay.wake(open.events.map(({ lane }) => lane))
    }
  }

  function eventOf(id: string, version: number, operation: string) {
    const serial = String(time.between(0, 2 ** 40)).padStart(16, '0')
    return {
      id: `${id}-v${version}-${serial}`,
      type: 'OrderChanged',
      aggregate: { type: 'order', id },
      version,
      payload: JSON.stringify({ operation, serial }),
      occurredAt: new Date(time.now()),
      headers: {},
      trace: null,
      topic: null,
    }
  }
}

function toCommitted(event: OutboxEvent): CommittedEvent {
  const { operation } = JSON.parse(event.payload ?? '{}') as { operation: string }
  return {
    id: event.id,
    seq: event.seq,
    topic: topicFor(event.aggregate.type),
    aggregateType: event.aggregate.type,
    aggregateId: event.aggregate.id,
    version: event.version,
    type: event.type,
    keyHash: event.keyHash,
    payloadHash: hashOf(event.payload),
    operation,
  }
}

function hashOf(value: string | Buffer | null): string | null {
  return value === null ? null : createHash('sha256').update(value).digest('hex')
}
