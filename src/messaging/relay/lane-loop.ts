/**
 * A relay worker's loop: read what is pending in its lanes, queue it by
 * topic-partition, settle what the broker has accepted.
 *
 * The three go on side by side. Publishing comes before settling: a crash in
 * between publishes again, and consumers drop the copies; the other order would
 * lose the event.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { Shutdown } from '../lifecycle/running.ts'
import { Wake } from '../lifecycle/wake.ts'
import type { TopicRule } from '../outbox/topic-rule.ts'
import type { KeyRef, LaneGrant, RelaySource, TopicRegistry } from '../source.ts'
import { ATTR_ERROR_TYPE, ATTR_OUTBOX, ATTR_POLL_RESULT, outboxName } from '../telemetry/attributes.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { Publisher, TopicPartition, TopicSpec } from '../transport.ts'
import { Chores } from './chores.ts'
import { Destinations } from './destinations.ts'
import { Hand, type HandEvent, type ReadPlan } from './hand.ts'
import { HeldKeys, refOf } from './held-keys.ts'
import { HeldRuns } from './held-runs.ts'
import type { ResolvedRelaySettings } from './options.ts'
import type { PartitionQueue, PartitionQueueOptions } from './partition-queue.ts'
import { nameOf, PartitionQueues } from './partition-queues.ts'
import type { WorkerReport } from './protocol.ts'
import { Settler } from './settler.ts'

/** Events in hand at most, in batches: one being read, one on its way, one being settled, and one to spare. */
const IN_HAND_BATCHES = 4

/** Attempts on an event in a lane whose owners keep dying, before it is taken for the cause and parked. */
const MAX_SOLO_ATTEMPTS = 3

/** Held keys that a report names at most. */
const REPORTED_KEYS = 20

export interface LaneLoopOptions {
  readonly source: RelaySource
  readonly publisher: Publisher
  readonly registry: TopicRegistry
  readonly topicFor: TopicRule
  readonly createTopics: TopicSpec | null
  readonly settings: ResolvedRelaySettings
  readonly shutdown: Shutdown
  readonly clock: Clock
  readonly logger: Logger
  /** Lanes that are ours no longer: given back, or found lost. */
  readonly onGone: (lanes: readonly number[]) => void
}

export class LaneLoop {
  readonly #options: LaneLoopOptions
  readonly #hand = new Hand()
  readonly #wake: Wake
  readonly #heldKeys: HeldKeys
  readonly #destinations: Destinations
  readonly #settler: Settler
  readonly #heldRuns: HeldRuns
  readonly #queues: PartitionQueues
  readonly #chores: Chores
  /** Where something failed while a read was under way: what the read brings for it is out of order. */
  readonly #failedDuringRead = new Set<string>()
  #lastExclusions = '[]'
  #fencedCount = 0

  constructor(options: LaneLoopOptions) {
    this.#options = options
    const { clock, settings, source, shutdown } = options
    this.#wake = new Wake(clock)
    this.#chores = new Chores({ ...options, cancelled: shutdown.cancelled, onDone: () => this.#wake.wake() })
    this.#heldKeys = new HeldKeys({ maxAttempts: settings.maxAttempts, clock })
    this.#destinations = new Destinations({ ...options, onChange: () => this.#wake.wake() })
    this.#queues = new PartitionQueues({ clock, optionsFor: (where) => this.#queueOptions(where) })
    this.#settler = new Settler({
      source,
      hand: this.#hand,
      chores: this.#chores,
      cancelled: shutdown.cancelled,
      onSettled: (fenced) => {
        this.#fenced(fenced)
        this.#wake.wake()
      },
    })
    this.#heldRuns = new HeldRuns({
      ...options,
      hand: this.#hand,
      heldKeys: this.#heldKeys,
      chores: this.#chores,
      destinations: this.#destinations,
      queueOf: (where) => this.#queues.of(where),
      batchSize: settings.batchSize,
      draining: shutdown.draining,
      onFenced: (lanes) => this.#fenced(lanes),
      onChange: (lanes) => this.wake(lanes),
    })
  }

  /** Takes over the lanes that the relay says are ours. */
  assign(owner: string, grants: readonly LaneGrant[]): void {
    const { lost, gained } = this.#hand.assign(owner, grants)
    this.#heldKeys.forgetLanes(lost)
    if (gained.length > 0) this.#chores.start(() => this.#openLanes(gained))
  }

  /** Finishes what is in hand of these lanes and gives them back. */
  yield(lanes: readonly number[]): void {
    this.#hand.yield(lanes)
    this.#wake.wake()
  }

  /** These lanes have something new. */
  wake(lanes: readonly number[]): void {
    this.#hand.touch(lanes)
    this.#wake.wake()
  }

  /** Something was asked of held keys in these lanes. */
  requested(lanes: readonly number[]): void {
    const ours = lanes.filter((lane) => this.#hand.holds(lane))
    if (ours.length > 0) this.#chores.start(async () => this.#heldKeys.load(await this.#options.source.heldKeys(ours)))
  }

  /** What the worker says of itself, but for the broker. */
  report(): Omit<WorkerReport, 'brokerProblem'> {
    return {
      inHandCount: this.#hand.count,
      publishedCount: this.#settler.publishedCount,
      fencedCount: this.#fencedCount,
      paused: [...this.#destinations.paused(), ...this.#queues.silent()],
      heldKeys: this.#heldKeys.summary(REPORTED_KEYS),
      heldKeyCount: this.#heldKeys.count,
      databaseProblem: this.#chores.problem,
      warnings: this.#destinations.warnings(),
    }
  }

  /** Runs until drained, or cancelled. What is in flight is settled; what was not sent stays pending; the lanes are given back. */
  async run(): Promise<void> {
    const { draining } = this.#options.shutdown
    await untraced(async () => {
      while (!draining.aborted) {
        this.#heldRuns.start()
        await this.#giveBackYielded()
        if (!(await this.#pass())) await this.#wake.within(this.#pauseMs(), draining)
      }
      for (const taken of this.#queues.clear()) this.#hand.drop(taken)
      await this.#queues.idle()
      await this.#heldRuns.idle()
      await this.#settler.idle()
      await this.#chores.idle()
      await this.#destinations.settled()
      // Also after a cancellation, but then without insisting: what is not given
      // back expires by itself.
      await this.#options.source.release(this.#hand.ownership(this.#hand.lanes)).catch(() => {})
    })
  }

  /** Reads once and queues what came; resolves to whether to go on at once. */
  async #pass(): Promise<boolean> {
    const { clock, settings, shutdown } = this.#options
    const slow = this.#queues.slow()
    for (const taken of slow.flatMap((queue) => queue.clear())) this.#hand.drop(taken)
    const exclusions = this.#destinations.exclusions(
      clock.now(),
      slow.map(({ where }) => where),
    )
    this.#touchWhatRestedBefore(JSON.stringify(exclusions))

    const stalled = slow.map(({ load }) => load)
    const inHand = this.#hand.count - stalled.reduce((sum, { count }) => sum + count, 0)
    const inHandBytes = this.#hand.bytes - stalled.reduce((sum, load) => sum + load.bytes, 0)
    const room = Math.min(settings.batchSize, settings.batchSize * IN_HAND_BATCHES - inHand)
    const bytes = settings.maxInHandBytes - inHandBytes
    const plan = room > 0 && bytes > 0 ? this.#hand.plan(room) : []
    if (plan.length === 0) return false

    const maxBytesPerLane = Math.max(1, Math.floor(bytes / plan.length))
    this.#failedDuringRead.clear()
    try {
      const events = await this.#read({ lanes: plan, maxBytesPerLane, inHand: this.#hand.inHand(plan), exclusions })
      this.#chores.succeeded()
      this.#hand.learn(plan, events, maxBytesPerLane, settings.batchSize)
      await this.#queue(events)
      if (exclusions.length === 0) this.#clearRecovered(plan, events)
      return events.length > 0
    } catch (error) {
      this.#hand.touch(plan.map(({ lane }) => lane))
      await this.#chores.failed(error, shutdown.draining)
      return true
    }
  }

  async #read(request: Parameters<RelaySource['read']>[1]): Promise<readonly OutboxEvent[]> {
    const { source } = this.#options
    const started = performance.now()
    let result = 'error'
    try {
      const events = await source.read(this.#hand.ownership(request.lanes.map(({ lane }) => lane)), request)
      result = events.length > 0 ? 'rows' : 'empty'
      return events
    } finally {
      const seconds = (performance.now() - started) / 1000
      getInstruments().pollDuration.record(seconds, { [ATTR_OUTBOX]: outboxName(), [ATTR_POLL_RESULT]: result })
    }
  }

  /** What rested at the last read and does so no longer may be in any lane. */
  #touchWhatRestedBefore(exclusions: string): void {
    if (this.#lastExclusions !== exclusions) this.#hand.touch()
    this.#lastExclusions = exclusions
  }

  async #queue(events: readonly OutboxEvent[]): Promise<void> {
    const now = this.#options.clock.now()
    const filled = new Set<PartitionQueue>()
    const followed = new Map<string, KeyRef>()
    try {
      for (const event of events) {
        const topic = this.#destinations.topicOf(event)
        if (this.#heldKeys.has(topic, event)) followed.set(`${topic} ${event.aggregate.id}`, refOf(topic, event))
        else await this.#queueOne(event, topic, now, filled)
      }
    } finally {
      for (const queue of filled) queue.start()
    }
    for (const key of followed.values()) {
      this.#fenced((await this.#options.source.holdFollowers(this.#hand.ownership([key.lane]), key)).fencedLanes)
    }
  }

  async #queueOne(event: OutboxEvent, topic: string, now: number, filled: Set<PartitionQueue>): Promise<void> {
    const where = this.#destinations.place(event, now)
    if (where === null || this.#failedDuringRead.has(nameOf(where))) {
      // It stays pending, and is met again once its destination is back.
      this.#hand.touch([event.lane])
      return
    }
    if (this.#hand.goesAlone(event.lane) && !(await this.#maySendAlone(topic, event))) return
    const taken = this.#hand.take(event)
    if (taken === null) return
    const queue = this.#queues.of(where)
    queue.push(taken)
    filled.add(queue)
  }

  #queueOptions(where: TopicPartition): PartitionQueueOptions {
    const { publisher, settings, shutdown, clock } = this.#options
    return {
      publisher,
      clock,
      batchSize: settings.batchSize,
      maxBatchBytes: settings.maxBatchBytes,
      cancelled: shutdown.cancelled,
      wanted: (taken) => {
        if (this.#hand.has(taken) && !this.#heldKeys.has(where.topic, taken.event)) return true
        this.#hand.drop(taken)
        return false
      },
      onPublished: (events) => {
        this.#destinations.succeeded(where)
        this.#settler.accept(events, where)
      },
      onRefused: (taken, error) => this.#refused(taken, error),
      onFailed: (events, error) => this.#failed(events, where, error),
    }
  }

  /** The destination failed: everything for it goes back to pending, so that it comes again in order. */
  #failed(events: readonly HandEvent[], where: TopicPartition, error: PublishError): void {
    if (this.#options.shutdown.cancelled.aborted) return
    this.#failedDuringRead.add(nameOf(where))
    this.#destinations.failed(error)
    for (const taken of events) this.#hand.drop(taken)
    this.#hand.touch(events.map(({ event }) => event.lane))
    getInstruments().retries.add(1, { [ATTR_OUTBOX]: outboxName(), [ATTR_ERROR_TYPE]: error.reason })
    this.#wake.wake()
  }

  #refused(taken: HandEvent, error: PublishError): void {
    this.#hold(error.topic, taken.event, error.reason, { park: false })
    this.#hand.drop(taken)
  }

  #hold(topic: string, event: OutboxEvent, reason: string, { park }: { park: boolean }): void {
    const key = refOf(topic, event)
    const request = this.#heldKeys.refused(key, reason, { park })
    this.#options.logger.warn({ ...key, event_id: event.id, ...request }, request.park ? 'key parked' : 'key held')
    this.#chores.start(async () => {
      this.#fenced((await this.#options.source.hold(this.#hand.ownership([key.lane]), key, request)).fencedLanes)
      this.#heldKeys.written(key)
    })
  }

  /** Counts the attempt before the send, so that an event whose sending kills the worker is found out. */
  async #maySendAlone(topic: string, event: OutboxEvent): Promise<boolean> {
    const attempts = await this.#options.source.recordAttempt(this.#hand.ownership([event.lane]), event)
    if (attempts > MAX_SOLO_ATTEMPTS) {
      this.#hold(topic, event, 'the relay died each time it sent this event', { park: true })
      return false
    }
    return attempts > 0
  }

  #clearRecovered(plan: readonly ReadPlan[], events: readonly OutboxEvent[]): void {
    const recovered = this.#hand.recovered(plan, events)
    if (recovered.length === 0) return
    for (const lane of recovered) this.#hand.cleared(lane)
    this.#chores.start(async () => {
      await this.#options.source.clearCrashes(this.#hand.ownership(recovered))
    })
  }

  async #openLanes(grants: readonly LaneGrant[]): Promise<void> {
    this.#heldKeys.load(await this.#options.source.heldKeys(grants.map(({ lane }) => lane)))
    this.#hand.open(grants)
    this.#wake.wake()
  }

  async #giveBackYielded(): Promise<void> {
    const lanes = this.#hand.yielded().map(({ lane }) => lane)
    if (lanes.length === 0) return
    try {
      await this.#options.source.release(this.#hand.ownership(lanes))
      this.#lose(lanes)
    } catch (error) {
      await this.#chores.failed(error, this.#options.shutdown.draining)
    }
  }

  #fenced(lanes: readonly number[]): void {
    if (lanes.length === 0) return
    this.#fencedCount += lanes.length
    getInstruments().fencedWrites.add(lanes.length, { [ATTR_OUTBOX]: outboxName() })
    this.#options.logger.warn({ lanes }, 'lanes lost to another worker')
    this.#lose(lanes)
  }

  #lose(lanes: readonly number[]): void {
    for (const lane of lanes) this.#hand.lose(lane)
    this.#heldKeys.forgetLanes(lanes)
    this.#options.onGone(lanes)
  }

  #pauseMs(): number {
    const waits = [
      this.#options.settings.pollIntervalMs,
      this.#destinations.nextChangeInMs(),
      this.#queues.nextSlowInMs(),
      this.#heldKeys.nextDueInMs(),
    ]
    return Math.max(1, Math.min(...waits.filter((wait) => wait !== null)))
  }
}
