/**
 * Publishes the events of held keys that are due: the first alone, then the
 * rest in order, until none is left and the key is let go.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { KeyRef, RelaySource } from '../source.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { TopicPartition } from '../transport.ts'
import type { Chores } from './chores.ts'
import type { Destinations } from './destinations.ts'
import type { Hand } from './hand.ts'
import type { HeldKeys } from './held-keys.ts'
import type { PartitionQueue } from './partition-queue.ts'

/** How long a key waits whose destination rests, or whose database failed. */
const POSTPONE_MS = 1_000

export interface HeldRunsOptions {
  readonly source: RelaySource
  readonly hand: Hand
  readonly heldKeys: HeldKeys
  readonly chores: Chores
  readonly destinations: Destinations
  readonly queueOf: (where: TopicPartition) => PartitionQueue
  readonly batchSize: number
  readonly clock: Clock
  readonly logger: Logger
  readonly draining: AbortSignal
  readonly onFenced: (lanes: readonly number[]) => void
  /** A key was let go, or something of it has changed: the lane is worth a look. */
  readonly onChange: (lanes: readonly number[]) => void
}

export class HeldRuns {
  readonly #options: HeldRunsOptions
  readonly #running = new Set<Promise<void>>()

  constructor(options: HeldRunsOptions) {
    this.#options = options
  }

  /** Starts a run for each key that is due. */
  start(): void {
    const { heldKeys, onChange } = this.#options
    for (const key of heldKeys.takeDue()) {
      const running = untraced(() => this.#run(key))
        .catch(() => {
          heldKeys.postpone(key, POSTPONE_MS)
        })
        .finally(() => {
          this.#running.delete(running)
          onChange([key.lane])
        })
      this.#running.add(running)
    }
  }

  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running)
  }

  async #run(key: KeyRef): Promise<void> {
    const { source, hand, heldKeys, draining, logger } = this.#options
    let limit = 1
    while (hand.holds(key.lane)) {
      if (draining.aborted) {
        heldKeys.postpone(key, 0)
        return
      }
      const events = await source.readHeld(key, limit)
      if (events.length === 0) {
        const isReleased = await source.releaseKey(hand.ownership([key.lane]), key)
        if (!isReleased && (await this.#isHeld(key))) {
          // Something of the key has become held meanwhile, or the lane is lost:
          // a later run finds out which.
          heldKeys.postpone(key, 0)
          return
        }
        // Released now, or by a release whose answer was lost.
        heldKeys.forget(key)
        logger.info({ ...key }, 'held key let go')
        return
      }
      if (!(await this.#publish(key, events))) return
      limit = this.#options.batchSize
    }
    heldKeys.forget(key)
  }

  async #isHeld(key: KeyRef): Promise<boolean> {
    const held = await this.#options.source.heldKeys([key.lane])
    return held.some(
      ({ topic, aggregateType, aggregateId }) =>
        topic === key.topic && aggregateType === key.aggregateType && aggregateId === key.aggregateId,
    )
  }

  /** Resolves to whether to go on with the key's next events. */
  async #publish(key: KeyRef, events: readonly OutboxEvent[]): Promise<boolean> {
    const { source, hand, heldKeys, chores, destinations, queueOf, clock, onFenced, logger } = this.#options
    const [first] = events
    const where = first === undefined ? null : destinations.place(first, clock.now())
    if (first === undefined || where === null) {
      heldKeys.postpone(key, POSTPONE_MS)
      return false
    }
    const failure = await queueOf(where).sendApart(events, () => hand.holds(key.lane))
    if (failure === 'unwanted') {
      heldKeys.forget(key)
      return false
    }
    const ownership = hand.ownership([key.lane])
    if (failure === null) {
      const { fencedLanes } = await source.settle(ownership, events)
      onFenced(fencedLanes)
      heldKeys.accepted(key)
      return true
    }
    if (failure.kind === 'record' && failure.outcome === 'refused') {
      // Of several, the culprit is found by sending them one by one.
      if (events.length > 1) return await this.#publish(key, [first])
      const request = heldKeys.refused(key, failure.reason)
      logger.warn({ ...key, event_id: first.id, ...request }, request.park ? 'key parked' : 'key held')
      chores.start(async () => {
        onFenced((await source.hold(hand.ownership([key.lane]), key, request)).fencedLanes)
        heldKeys.written(key)
      })
      return false
    }
    destinations.failed(failure)
    heldKeys.postpone(key, destinations.nextChangeInMs() ?? POSTPONE_MS)
    return false
  }
}
