/**
 * Publishes the events of held keys that are due: the first alone, then the
 * rest in order, until none is left and the key is let go. An operator's
 * request to skip leaves the first one out.
 *
 * A run is bound to the lease under which it began, and ends with it.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { KeyRef, Lease, Ownership, RelaySource } from '../source.ts'
import { traceMark } from '../telemetry/batch-span.ts'
import { keyFields } from '../telemetry/event-log.ts'
import { countRetry } from '../telemetry/measure.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { TopicPartition } from '../transport.ts'
import type { Chores } from './chores.ts'
import type { Destinations } from './destinations.ts'
import type { Hand } from './hand.ts'
import type { DueKey, HeldKeys } from './held-keys.ts'
import { type Holding, isHeld } from './holding.ts'
import type { PartitionQueue } from './partition-queue.ts'
import { approximateBytes } from './record.ts'
import type { Skips } from './skips.ts'
import { DEADLY, type SoloLanes } from './solo-lanes.ts'

/** How long a key waits whose destination rests, or whose database failed. */
const POSTPONE_MS = 1_000
/** How long a key waits that could not be let go yet, or of which something is still to be marked. */
const RELEASE_AGAIN_MS = 100
/** Runs at once: each takes memory for a batch, and the connections are few. */
const MAX_RUNS = 8

export interface HeldRunsOptions {
  readonly source: RelaySource
  readonly hand: Hand
  readonly heldKeys: HeldKeys
  readonly holding: Holding
  readonly solo: SoloLanes
  readonly skips: Skips
  readonly chores: Chores
  readonly destinations: Destinations
  readonly queueOf: (where: TopicPartition) => PartitionQueue
  readonly batchSize: number
  readonly maxBatchBytes: number
  readonly clock: Clock
  readonly logger: Logger
  readonly draining: AbortSignal
  readonly onPublished: (count: number, where: TopicPartition) => void
  readonly onFenced: (ownership: Ownership, lanes: readonly number[]) => void
  /** Everything of a key was published, and it is held no more. */
  readonly onLetGo: (key: KeyRef) => void
  /** A key was let go, or something of it has changed: the lane is worth a look. */
  readonly onChange: (lanes: readonly number[]) => void
}

export class HeldRuns {
  readonly #options: HeldRunsOptions
  readonly #running = new Map<Promise<void>, KeyRef>()

  constructor(options: HeldRunsOptions) {
    this.#options = options
  }

  /** Starts a run for each key that is due, as far as there is room. */
  start(): void {
    const { hand, heldKeys, destinations, onChange } = this.#options
    const adopting = new Set(destinations.adopting.map(({ topic }) => topic))
    for (const due of heldKeys.takeDue(MAX_RUNS - this.#running.size)) {
      const lease = hand.leaseOf(due.ref.lane)
      if (lease === null) {
        heldKeys.forget(due.ref)
        continue
      }
      // A run would find out as much; with many held keys there would always be one, and the topic never idle.
      if (adopting.has(due.ref.topic)) {
        heldKeys.postpone(due.ref, POSTPONE_MS)
        continue
      }
      // Sent before the refused one, and not marked yet: it may be among the held by now, and would be sent again.
      if (hand.some(due.ref.lane, (event) => isOf(due.ref, destinations.topicOf(event), event))) {
        heldKeys.postpone(due.ref, RELEASE_AGAIN_MS)
        continue
      }
      const running = untraced(() => this.#run(due, lease))
        .catch(() => this.#postpone(due.ref, lease, POSTPONE_MS))
        .finally(() => {
          this.#running.delete(running)
          onChange([due.ref.lane])
        })
      this.#running.set(running, due.ref)
    }
  }

  /** Milliseconds until a run can begin; `null` when none will, or the end of another comes first. */
  nextDueInMs(): number | null {
    return this.#running.size < MAX_RUNS ? this.#options.heldKeys.nextDueInMs() : null
  }

  /** The lanes that have a run: they are not given back under it. */
  get lanes(): ReadonlySet<number> {
    return new Set([...this.#running.values()].map(({ lane }) => lane))
  }

  /** Whether no key of a topic has a run. */
  isIdle(topic: string): boolean {
    return [...this.#running.values()].every((ref) => ref.topic !== topic)
  }

  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running.keys())
  }

  async #run(due: DueKey, lease: Lease): Promise<void> {
    const { source, hand, heldKeys, holding, batchSize, maxBatchBytes, draining, logger, onLetGo } = this.#options
    const key = due.ref
    const ownership = { owner: hand.owner, leases: [lease] }
    const againInMs = await this.#obey(due, lease)
    if (againInMs !== null) {
      // Nothing of the kind is asked any more, or not yet.
      this.#postpone(key, lease, againInMs)
      holding.learn([key.lane])
      return
    }
    let count = 1
    let attempt = due.task === 'publish' ? due.attempts + 1 : 1
    while (hand.holdsUnder(lease)) {
      if (draining.aborted) return this.#postpone(key, lease, 0)
      const events = withinBytes(await source.readHeld(key, { count, bytes: maxBatchBytes }), maxBatchBytes)
      if (events.length === 0) {
        const isReleased = await source.releaseKey(ownership, key)
        if (!isReleased && (await isHeld(source, key))) {
          // Something of the key has become held meanwhile, or the lane is lost:
          // a later run finds out which.
          return this.#postpone(key, lease, RELEASE_AGAIN_MS)
        }
        // Released now, or by a release whose answer was lost.
        if (hand.holdsUnder(lease)) heldKeys.forget(key)
        onLetGo(key)
        logger.info({ ...keyFields(key), lane: key.lane }, 'Held key let go')
        return
      }
      if (!(await this.#publish({ ...due, attempt }, lease, events))) return
      attempt = 1
      count = hand.goesAlone(key.lane) ? 1 : batchSize
    }
  }

  /**
   * Does what an operator asked of a parked key, before anything is sent: the
   * database then says that the key goes on, and takes no request to skip an
   * event that may be on its way. Resolves to `null` when that is done, or to
   * the milliseconds after which to try again, also where another request has
   * taken this one's place.
   */
  async #obey({ ref, task, reason }: DueKey, lease: Lease): Promise<number | null> {
    const { source, hand, heldKeys, skips, onFenced } = this.#options
    switch (task) {
      case 'publish':
        return null
      case 'resume': {
        const ownership = { owner: hand.owner, leases: [lease] }
        const { changed, fencedLanes } = await source.goOn(ownership, ref, 'resume')
        onFenced(ownership, fencedLanes)
        if (changed === 0) return POSTPONE_MS
        heldKeys.goesOn({ ref, reason })
        return null
      }
      case 'skip': {
        const outcome = await skips.skip(ref, lease)
        if (outcome.kind === 'not yet') return outcome.againInMs
        heldKeys.goesOn({ ref, reason })
        return null
      }
    }
  }

  /** Resolves to whether to go on with the key's next events. */
  async #publish(
    due: DueKey & { readonly attempt: number },
    lease: Lease,
    events: readonly OutboxEvent[],
  ): Promise<boolean> {
    const { hand, heldKeys, holding, solo, destinations, queueOf, clock } = this.#options
    const [first] = events
    const where = first === undefined ? null : destinations.place(first, clock.now())
    if (first === undefined || where === null) {
      this.#postpone(due.ref, lease, POSTPONE_MS)
      return false
    }
    if (hand.goesAlone(due.ref.lane)) {
      const verdict = await solo.admit(first)
      if (verdict === 'deadly') holding.hold(where, first, { reason: DEADLY, park: true })
      if (verdict !== 'send') return false
    }
    const failure = await queueOf(where).sendApart(events, {
      wanted: () => hand.holdsUnder(lease),
      attempt: due.attempt,
      isReplay: due.task !== 'publish',
    })
    if (failure === 'unwanted' || !hand.holdsUnder(lease)) return false
    if (failure === null) return await this.#settle(due, lease, events, where)
    solo.survived([first])
    if (failure.kind === 'record' && failure.outcome === 'refused') {
      // Of several, the culprit is found by halving.
      if (events.length > 1) {
        const half = events.slice(0, Math.ceil(events.length / 2))
        return await this.#publish({ ...due, attempt: due.attempt + 1 }, lease, half)
      }
      holding.hold(where, first, { reason: failure.reason, park: false })
      return false
    }
    destinations.failed(failure)
    countRetry(failure.reason)
    heldKeys.postpone(due.ref, destinations.nextChangeInMs() ?? POSTPONE_MS)
    return false
  }

  async #settle(due: DueKey, lease: Lease, events: readonly OutboxEvent[], where: TopicPartition): Promise<boolean> {
    const { source, hand, heldKeys, chores, destinations, onFenced, onPublished } = this.#options
    const ownership = { owner: hand.owner, leases: [lease] }
    destinations.succeeded(where)
    // Until it works: to send them again would make a copy at each failure.
    const isDone = await chores.insist(async () => {
      const { changed, fencedLanes } = await traceMark(events, () => source.settle(ownership, events))
      onPublished(changed, where)
      onFenced(ownership, fencedLanes)
    })
    if (isDone && hand.holdsUnder(lease)) heldKeys.goesOn(due)
    return isDone
  }

  #postpone(key: KeyRef, lease: Lease, ms: number): void {
    const { hand, heldKeys } = this.#options
    if (hand.holdsUnder(lease)) heldKeys.postpone(key, ms)
  }
}

function isOf(
  { topic, aggregateType, aggregateId }: KeyRef,
  topicOfEvent: string,
  { aggregate }: OutboxEvent,
): boolean {
  return aggregate.id === aggregateId && aggregate.type === aggregateType && topicOfEvent === topic
}

/** As many of the first events as fit in one batch; one at least. */
function withinBytes(events: readonly OutboxEvent[], maxBytes: number): readonly OutboxEvent[] {
  let bytes = 0
  const end = events.findIndex((event, index) => {
    bytes += approximateBytes(event)
    return index > 0 && bytes > maxBytes
  })
  return end === -1 ? events : events.slice(0, end)
}
