/**
 * A relay worker's loop: read what is pending in its lanes, queue it by
 * topic-partition, settle what the broker has accepted.
 *
 * The three go on side by side. Publishing comes before settling: a crash in
 * between publishes again, and consumers drop the copies; the other order would
 * lose the event. This file connects the parts and works through what concerns
 * a lane as a whole: having it, giving it back, losing it. A little beyond the
 * usual length: half of it is that wiring, which is read in one piece.
 */
import type { PublishError } from '../errors.ts'
import { CallWatch, unlessAborted, within } from '../lifecycle/call-watch.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { Shutdown } from '../lifecycle/running.ts'
import type { Term } from '../lifecycle/term.ts'
import { Wake } from '../lifecycle/wake.ts'
import type { TopicRule } from '../outbox/topic-rule.ts'
import type { AdoptedTopic, KeyRef, LaneGrant, Ownership, RelaySource, TopicRegistry } from '../source.ts'
import { ATTR_OUTBOX, outboxName } from '../telemetry/attributes.ts'
import { countRetry } from '../telemetry/measure.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { Publisher, TopicPartition, TopicSpec } from '../transport.ts'
import { Adoptions } from './adoptions.ts'
import { Chores } from './chores.ts'
import { Destinations } from './destinations.ts'
import { Doubts } from './doubts.ts'
import { Hand, type HandEvent } from './hand.ts'
import { HeldKeys } from './held-keys.ts'
import { HeldRuns } from './held-runs.ts'
import { Holding } from './holding.ts'
import { LaneReader } from './lane-reader.ts'
import type { ResolvedRelaySettings } from './options.ts'
import type { PartitionQueueOptions } from './partition-queue.ts'
import { PartitionQueues } from './partition-queues.ts'
import type { WorkerReport } from './protocol.ts'
import { Settler } from './settler.ts'
import { Skips } from './skips.ts'
import { SoloLanes } from './solo-lanes.ts'
import { Tenure } from './tenure.ts'

/** Milliseconds for which a cancelled worker tries to give its lanes back. */
const RELEASE_MS = 500

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
  /** The adoptions for which nothing is on its way any more. */
  readonly onRest: (adoptions: readonly string[]) => void
}

export class LaneLoop {
  readonly #options: LaneLoopOptions
  readonly #calls: CallWatch
  /** For the last call of all, which a cancellation does not end. */
  readonly #unwatched: RelaySource
  readonly #hand = new Hand()
  readonly #tenure: Tenure
  readonly #doubts: Doubts
  readonly #wake: Wake
  readonly #heldKeys: HeldKeys
  readonly #destinations: Destinations
  readonly #settler: Settler
  readonly #holding: Holding
  readonly #solo: SoloLanes
  readonly #heldRuns: HeldRuns
  readonly #reader: LaneReader
  readonly #queues: PartitionQueues
  readonly #chores: Chores
  readonly #adoptions: Adoptions

  constructor(options: LaneLoopOptions) {
    const { clock, settings, shutdown } = options
    this.#calls = new CallWatch({ clock, caller: 'relay' })
    const source = this.#calls.over(options.source, shutdown.cancelled)
    const registry = this.#calls.over(options.registry, shutdown.cancelled)
    this.#options = { ...options, source, registry }
    this.#unwatched = options.source
    this.#tenure = new Tenure(clock)
    const { deliveryTimeoutMs } = options.publisher
    this.#doubts = new Doubts({ clock, deliveryTimeoutMs, leaseMs: settings.leaseMs })
    this.#wake = new Wake(clock)
    this.#chores = new Chores({ ...this.#options, cancelled: shutdown.cancelled, onDone: () => this.#wake.wake() })
    this.#heldKeys = new HeldKeys({
      maxAttempts: settings.maxAttempts,
      longestSkipMs: this.#doubts.longestMs,
      clock,
    })
    this.#destinations = new Destinations({ ...this.#options, onChange: () => this.#wake.wake() })
    this.#queues = new PartitionQueues({ clock, optionsFor: (where) => this.#queueOptions(where) })
    const parts = {
      ...this.#options,
      ...settings,
      ...shutdown,
      hand: this.#hand,
      heldKeys: this.#heldKeys,
      doubts: this.#doubts,
      chores: this.#chores,
      destinations: this.#destinations,
      queues: this.#queues,
      queueOf: (where: TopicPartition) => this.#queues.of(where),
      onFenced: (ownership: Ownership, lanes: readonly number[]) => this.#fenced(ownership, lanes),
      onChange: (lanes: readonly number[]) => {
        this.#hand.touch(lanes)
        this.#wake.wake()
      },
    }
    this.#settler = new Settler({
      ...parts,
      onSettled: (ownership, fenced) => {
        this.#fenced(ownership, fenced)
        this.#wake.wake()
      },
    })
    this.#holding = new Holding(parts)
    this.#solo = new SoloLanes(parts)
    const withHolding = { ...parts, holding: this.#holding, solo: this.#solo }
    const apart = {
      ...withHolding,
      onPublished: (count: number, where: TopicPartition) => this.#settler.countApart(count, where),
    }
    this.#reader = new LaneReader(withHolding)
    const onLetGo = (key: KeyRef) => this.#reader.letGo(key)
    this.#heldRuns = new HeldRuns({ ...apart, skips: new Skips(apart), onLetGo })
    const onCleared = (topic: string) => this.#reader.dropped(topic)
    this.#adoptions = new Adoptions({ ...parts, heldRuns: this.#heldRuns, onCleared })
  }

  /** Takes over the lanes that the relay says are ours. */
  assign(owner: string, grants: readonly LaneGrant[]): void {
    const { lost, gained } = this.#hand.assign(owner, grants)
    const lanes = gained.map(({ lane }) => lane)
    // What an earlier ownership has left says nothing any more.
    this.#heldKeys.forgetLanes([...lost, ...lanes])
    this.#doubts.inherit(gained)
    this.#holding.learn(lanes)
  }

  /** The leases stand for another term. */
  renewed(term: Term): void {
    this.#tenure.renewed(term)
  }

  /** Finishes what is in hand of these lanes and gives them back. */
  yield(lanes: readonly number[]): void {
    this.#hand.yield(lanes)
    this.#wake.wake()
  }

  /** These lanes have something new. */
  wake(lanes: readonly number[]): void {
    this.#hand.stir(lanes)
    this.#wake.wake()
  }

  /** Something was asked of held keys in these lanes. */
  requested(lanes: readonly number[]): void {
    this.#holding.learn(lanes.filter((lane) => this.#hand.holds(lane)))
  }

  /** Partition counts are being changed, or were. */
  adopted(topics: readonly AdoptedTopic[]): void {
    this.#adoptions.learn(topics)
  }

  /** What the worker says of itself, but for the broker. */
  report(): Omit<WorkerReport, 'brokerProblem'> {
    return {
      inHandCount: this.#hand.count,
      publishedCount: this.#settler.publishedCount,
      paused: [...this.#destinations.paused(), ...this.#queues.silent()],
      heldKeys: this.#heldKeys.summary(REPORTED_KEYS),
      heldKeyCount: this.#heldKeys.count,
      databaseProblem: this.#chores.problem ?? this.#calls.problem,
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
        this.#adoptions.tellRest()
        if (!(await this.#reader.pass())) await this.#wake.within(this.#pauseMs(), draining)
      }
      for (const taken of this.#queues.clear()) this.#hand.drop(taken)
      await this.#queues.idle()
      await this.#heldRuns.idle()
      await this.#settler.idle()
      await this.#chores.idle()
      await this.#destinations.settled()
      await this.#giveAllBack()
    })
  }

  #queueOptions(where: TopicPartition): PartitionQueueOptions {
    const { publisher, settings, shutdown, clock } = this.#options
    return {
      publisher,
      clock,
      batchSize: settings.batchSize,
      maxBatchBytes: settings.maxBatchBytes,
      cancelled: shutdown.cancelled,
      certain: () => this.#tenure.certain(shutdown.cancelled),
      wanted: (taken) => {
        if (this.#hand.has(taken) && !this.#heldKeys.has(where.topic, taken.event)) return true
        this.#hand.drop(taken)
        return false
      },
      onPublished: (events) => {
        this.#destinations.succeeded(where)
        this.#settler.accept(events, where)
      },
      onUnknown: (events) => this.#doubts.unknown(events),
      onRefused: (taken, error) => {
        // Under a lease that is gone, the refusal is its next owner's business.
        if (!this.#hand.has(taken)) return
        this.#solo.survived([taken.event])
        this.#holding.hold(where, taken.event, { reason: error.reason, park: false })
      },
      onFailed: (events, error) => this.#failed(events, where, error),
    }
  }

  /** The destination failed: everything for it goes back to pending, so that it comes again in order. */
  #failed(events: readonly HandEvent[], where: TopicPartition, error: PublishError): void {
    if (this.#options.shutdown.cancelled.aborted) return
    this.#reader.failed(where)
    this.#destinations.failed(error)
    this.#solo.survived(events.filter((taken) => this.#hand.has(taken)).map(({ event }) => event))
    for (const taken of events) this.#hand.drop(taken)
    this.#hand.touch(events.map(({ event }) => event.lane))
    countRetry(error.reason)
    this.#wake.wake()
  }

  async #giveBackYielded(): Promise<void> {
    const busy = this.#heldRuns.lanes
    const lanes = this.#hand.yielded().flatMap(({ lane }) => (busy.has(lane) ? [] : [lane]))
    if (lanes.length === 0) return
    try {
      await this.#release(this.#options.source, lanes)
      this.#lose(lanes)
    } catch (error) {
      await this.#chores.failed(error, this.#options.shutdown.draining)
    }
  }

  /** Also after a cancellation, but then without insisting: what is not given back expires by itself. */
  async #giveAllBack(): Promise<void> {
    const { clock, shutdown } = this.#options
    const released = this.#release(this.#unwatched, this.#hand.lanes).then(
      () => {},
      () => {},
    )
    await unlessAborted(released, shutdown.cancelled).catch(() => within(released, RELEASE_MS, clock))
  }

  async #release(source: RelaySource, lanes: readonly number[]): Promise<void> {
    const { owner, leases } = this.#hand.ownership(lanes)
    await source.release(
      owner,
      leases.map((lease) => ({ ...lease, doubt: this.#doubtOf(lease.lane) })),
    )
  }

  /** After a cancellation something may be in hand that was accepted and could not be marked. */
  #doubtOf(lane: number): bigint {
    const [doubt, inHand] = [this.#doubts.of(lane), this.#hand.lastOf(lane)]
    if (inHand > doubt) return inHand
    return doubt
  }

  #fenced({ leases }: Ownership, fencedLanes: readonly number[]): void {
    // A lane that has come back meanwhile is ours under another lease.
    const lost = leases.filter((lease) => fencedLanes.includes(lease.lane) && this.#hand.holdsUnder(lease))
    if (lost.length === 0) return
    const lanes = lost.map(({ lane }) => lane)
    getInstruments().fencedWrites.add(lanes.length, { [ATTR_OUTBOX]: outboxName() })
    this.#options.logger.warn({ lanes }, 'Lanes lost to another worker')
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
      this.#heldRuns.nextDueInMs(),
    ]
    return Math.max(1, Math.min(...waits.filter((wait) => wait !== null)))
  }
}
