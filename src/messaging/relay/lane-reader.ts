/**
 * Reads what is pending in a worker's lanes and queues it by topic-partition.
 *
 * What is read goes to its queue in append order, all of it or none: an event
 * whose destination rests or has failed meanwhile stays pending, and so does
 * everything behind it that goes there too. What was read under a lease that has
 * ended meanwhile is forgotten, though the lane be ours again: what was in hand
 * before it is pending, and has to go first.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Clock } from '../lifecycle/clock.ts'
import { LANE_COUNT } from '../outbox/lane.ts'
import type { Exclusion, KeyRef, Lease, RelaySource } from '../source.ts'
import { ATTR_OUTBOX, ATTR_POLL_RESULT, outboxName } from '../telemetry/attributes.ts'
import { traceRead } from '../telemetry/batch-span.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import type { TopicPartition } from '../transport.ts'
import type { Chores } from './chores.ts'
import type { Destinations } from './destinations.ts'
import type { Hand, ReadPlan } from './hand.ts'
import { type HeldKeys, nameOfKey, refOf } from './held-keys.ts'
import type { Holding } from './holding.ts'
import type { ResolvedRelaySettings } from './options.ts'
import type { PartitionQueue } from './partition-queue.ts'
import { nameOf, type PartitionQueues } from './partition-queues.ts'
import { DEADLY, type SoloLanes } from './solo-lanes.ts'

/** Events in hand at most, in batches: one being read, one on its way, one being settled, and one to spare. */
const IN_HAND_BATCHES = 4

/** Milliseconds of a read above which the next one takes fewer lanes, and below a quarter of which it takes more. */
const LONG_READ_MS = 1_000

/** How much longer than its read took a lane is quiet in which only events of resting destinations wait: they were all looked at. */
const QUIET_FACTOR = 10
const MAX_QUIET_MS = 10_000

export interface LaneReaderOptions {
  readonly source: RelaySource
  readonly hand: Hand
  readonly heldKeys: HeldKeys
  readonly holding: Holding
  readonly solo: SoloLanes
  readonly chores: Chores
  readonly destinations: Destinations
  readonly queues: PartitionQueues
  readonly settings: ResolvedRelaySettings
  readonly clock: Clock
  readonly draining: AbortSignal
}

export class LaneReader {
  readonly #options: LaneReaderOptions
  /** Where something failed while a read was under way: what the read brings for it is out of order. */
  readonly #failedDuringRead = new Set<string>()
  /** Topics of which something was dropped while a read was under way. */
  readonly #droppedDuringRead = new Set<string>()
  /** Keys that were let go while a read was under way. */
  readonly #letGoDuringRead = new Set<string>()
  /** Lanes of one read at most. A long outage leaves so much to look past that all at once would take too long. */
  #laneLimit = LANE_COUNT
  /** What the last read left out. */
  #excluded = new Map<string, Exclusion>()

  constructor(options: LaneReaderOptions) {
    this.#options = options
  }

  /** Notes that a destination has failed. */
  failed(where: TopicPartition): void {
    this.#failedDuringRead.add(nameOf(where))
  }

  /** Notes that what waited for a topic has been dropped: what comes behind it in this read is to be read again too. */
  dropped(topic: string): void {
    this.#droppedDuringRead.add(topic)
  }

  /** Notes that a key was let go: what this read has of it may have been published since. */
  letGo(key: KeyRef): void {
    this.#letGoDuringRead.add(nameOfKey(key))
  }

  /** Reads once and queues what came; resolves to whether to go on at once. Waits a little after a failure. */
  async pass(): Promise<boolean> {
    const { hand, chores, queues, destinations, clock, draining } = this.#options
    const slow = queues.slow()
    for (const taken of slow.flatMap((queue) => queue.clear())) hand.drop(taken)
    const exclusions = destinations.exclusions(
      clock.now(),
      slow.map(({ where }) => where),
    )
    this.#touchWhatRestedBefore(exclusions)
    const room = this.#room(slow)
    const limit = { events: room.count, lanes: this.#laneLimit }
    const plan = room.count > 0 && room.bytes > 0 ? hand.plan(clock.now(), limit) : []
    if (plan.length === 0) return false

    this.#failedDuringRead.clear()
    this.#droppedDuringRead.clear()
    this.#letGoDuringRead.clear()
    const startedAt = clock.now()
    try {
      const takenCount = await this.#read(plan, room.bytes, exclusions)
      // What was read and not taken is waited for: it says so when it can be.
      return takenCount > 0 || (plan.length === limit.lanes && hand.wantsRead(clock.now()))
    } catch (error) {
      hand.touch(plan.map(({ lane }) => lane))
      await chores.failed(error, draining)
      return true
    } finally {
      this.#adapt(plan.length, clock.now() - startedAt)
    }
  }

  /** Resolves to how many events were taken in hand. */
  async #read(plan: readonly ReadPlan[], bytes: number, exclusions: readonly Exclusion[]): Promise<number> {
    const { source, hand, chores, solo, settings, clock } = this.#options
    const lanes = plan.map(({ lane }) => lane)
    const maxBytesPerLane = Math.max(1, Math.floor(bytes / plan.length))
    const request = { lanes: plan, maxBytesPerLane, inHand: hand.inHand(plan), exclusions }
    const startedAt = clock.now()
    const readAt = Date.now()
    const ownership = hand.ownership(lanes)
    const read = await measured(() => source.read(ownership, request))
    chores.succeeded()
    const leases = new Map(ownership.leases.filter((lease) => hand.holdsUnder(lease)).map((each) => [each.lane, each]))
    const events = read.filter(({ lane }) => leases.has(lane))
    const standing = plan.filter(({ lane }) => leases.has(lane))
    hand.learn(standing, events, maxBytesPerLane, settings.batchSize)
    if (exclusions.length === 0) solo.recover(standing, events)
    else {
      const found = new Set(events.map(({ lane }) => lane))
      const quietMs = Math.min(MAX_QUIET_MS, QUIET_FACTOR * (clock.now() - startedAt))
      hand.quiet(
        [...leases.keys()].filter((lane) => !found.has(lane)),
        clock.now() + quietMs,
      )
    }
    return await this.#queue(events, { readAt, leases })
  }

  #adapt(laneCount: number, tookMs: number): void {
    if (tookMs > LONG_READ_MS) this.#laneLimit = Math.max(1, Math.floor(laneCount / 2))
    else if (tookMs < LONG_READ_MS / 4) this.#laneLimit = Math.min(LANE_COUNT, this.#laneLimit * 2)
  }

  /** What else may be in hand. What is stuck in a silent partition takes no room from the others. */
  #room(slow: readonly PartitionQueue[]): { readonly count: number; readonly bytes: number } {
    const { hand, settings } = this.#options
    let count = settings.batchSize * IN_HAND_BATCHES - hand.count
    let bytes = settings.maxInHandBytes - hand.bytes
    for (const { load } of slow) {
      count += load.count
      bytes += load.bytes
    }
    return { count: Math.min(settings.batchSize, count), bytes }
  }

  /** What rested at the last read and does so no longer may be in any lane that feeds it. */
  #touchWhatRestedBefore(exclusions: readonly Exclusion[]): void {
    const { hand } = this.#options
    const excluded = new Map(exclusions.map((exclusion) => [nameOfExclusion(exclusion), exclusion]))
    for (const [name, exclusion] of this.#excluded) if (!excluded.has(name)) hand.touch(lanesFeeding(exclusion))
    this.#excluded = excluded
  }

  /** Queues what was read since `readAt`, in Unix milliseconds, under these leases; resolves to how many events were taken in hand. */
  async #queue(
    events: readonly OutboxEvent[],
    { readAt, leases }: { readAt: number; leases: ReadonlyMap<number, Lease> },
  ): Promise<number> {
    const { destinations, hand, heldKeys, holding, clock } = this.#options
    const now = clock.now()
    const filled = new Set<PartitionQueue>()
    const followed = new Map<string, KeyRef>()
    // A look-up or a pause may end on the way: what comes behind an event that
    // was left pending stays so too.
    const left = new Set<string>()
    const taken: OutboxEvent[] = []
    try {
      for (const event of events) {
        const key = refOf(destinations.topicOf(event), event)
        if (heldKeys.has(key.topic, event)) followed.set(nameOfKey(key), key)
        else if (this.#isToBeReadAgain(key, left)) hand.touch([event.lane])
        else if (await this.#queueOne(event, { now, filled, lease: leases.get(event.lane) })) taken.push(event)
        else left.add(nameOfKey(key))
      }
    } finally {
      traceRead(taken, readAt)
      for (const queue of filled) queue.start()
    }
    for (const key of followed.values()) holding.follow(key)
    return taken.length
  }

  #isToBeReadAgain(key: KeyRef, left: ReadonlySet<string>): boolean {
    const [letGo, dropped] = [this.#letGoDuringRead, this.#droppedDuringRead]
    if (left.size + letGo.size + dropped.size === 0) return false
    const name = nameOfKey(key)
    return left.has(name) || letGo.has(name) || dropped.has(key.topic)
  }

  async #queueOne(
    event: OutboxEvent,
    { now, filled, lease }: { now: number; filled: Set<PartitionQueue>; lease: Lease | undefined },
  ): Promise<boolean> {
    const { destinations, hand, holding, solo, queues } = this.#options
    if (lease === undefined || !hand.holdsUnder(lease)) return false
    const where = destinations.place(event, now)
    if (where === null || this.#failedDuringRead.has(nameOf(where))) {
      // It stays pending, and is met again once its destination is back.
      hand.touch([event.lane])
      return false
    }
    if (hand.goesAlone(event.lane)) {
      const verdict = await solo.admit(event)
      if (verdict === 'deadly') holding.hold(where, event, { reason: DEADLY, park: true })
      if (verdict !== 'send') return false
    }
    const taken = hand.take(event, lease)
    if (taken === null) return false
    const queue = queues.of(where)
    queue.push(taken)
    filled.add(queue)
    return true
  }
}

async function measured(read: () => Promise<readonly OutboxEvent[]>): Promise<readonly OutboxEvent[]> {
  const started = performance.now()
  let result = 'error'
  try {
    const events = await read()
    result = events.length > 0 ? 'rows' : 'empty'
    return events
  } finally {
    const seconds = (performance.now() - started) / 1000
    getInstruments().pollDuration.record(seconds, { [ATTR_OUTBOX]: outboxName(), [ATTR_POLL_RESULT]: result })
  }
}

function nameOfExclusion({ topic, partition }: Exclusion): string {
  return partition === null ? topic : `${topic}/${partition.number}/${partition.count}`
}

/** All lanes, unless the partition count divides theirs: then a lane feeds one partition of a topic. */
function lanesFeeding({ partition }: Exclusion): readonly number[] {
  const lanes = Array.from({ length: LANE_COUNT }, (_, lane) => lane)
  if (partition === null || LANE_COUNT % partition.count !== 0) return lanes
  return lanes.filter((lane) => lane % partition.count === partition.number)
}
