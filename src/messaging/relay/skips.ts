/**
 * Carries out an operator's request to skip a parked key's first event.
 *
 * An event that only ever met refusals is left out at once. One that is in
 * doubt may have been stored by a send that nobody heard of again: then its
 * partition is read first, from before the event's creation to the end, and so
 * is each that earlier partition counts had put it on. Found there, it counts as
 * published; not found, it is skipped, and nothing that was sent can bring it
 * any more, since the request has waited for that.
 */
import type { OutboxEvent } from '../envelope.ts'
import { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { KeyRef, Lease, Ownership, RelaySource } from '../source.ts'
import { eventFields, inTraceOf } from '../telemetry/event-log.ts'
import type { Publisher, TopicPartition } from '../transport.ts'
import type { Destinations } from './destinations.ts'
import type { Doubts } from './doubts.ts'
import type { Hand } from './hand.ts'

/** Milliseconds by which the clocks of the database and of any relay may differ: so much earlier the reading begins. */
const CLOCKS_DIFFER_MS = 600_000
/** Milliseconds after which a partition that could not be read is tried again. */
const READ_AGAIN_MS = 10_000
/** The same for a request that was found changed, or whose topic rests. */
const LOOK_AGAIN_MS = 1_000

interface NotYet {
  readonly kind: 'not yet'
  readonly againInMs: number
}

interface Found {
  readonly kind: 'found'
  readonly where: TopicPartition
  readonly offset: bigint
}

/** What has become of a request: once the event is settled, or there was none, the key goes on. */
export type SkipOutcome = { readonly kind: 'goes on' } | NotYet

export interface SkipsOptions {
  readonly source: RelaySource
  readonly publisher: Publisher
  readonly hand: Hand
  readonly doubts: Doubts
  readonly destinations: Destinations
  readonly clock: Clock
  readonly logger: Logger
  readonly draining: AbortSignal
  readonly onPublished: (count: number, where: TopicPartition) => void
  readonly onFenced: (ownership: Ownership, lanes: readonly number[]) => void
}

export class Skips {
  readonly #options: SkipsOptions

  constructor(options: SkipsOptions) {
    this.#options = options
  }

  /** Skips the first event of `key` under `lease`. Rejects when the database does not answer. */
  async skip(key: KeyRef, lease: Lease): Promise<SkipOutcome> {
    const { source, hand, doubts, onPublished, onFenced } = this.#options
    const ownership = { owner: hand.owner, leases: [lease] }
    const [event] = await source.readHeld(key, { count: 1, bytes: 1 })
    if (event === undefined) {
      const { changed, fencedLanes } = await source.goOn(ownership, key, 'skip')
      onFenced(ownership, fencedLanes)
      return changed === 1 ? { kind: 'goes on' } : { kind: 'not yet', againInMs: LOOK_AGAIN_MS }
    }
    const found = doubts.has(event) ? await this.#find(event) : null
    if (found?.kind === 'not yet') return found

    const published = found !== null
    const request = { eventId: event.id, published, longestWaitMs: doubts.longestMs }
    const { changed, fencedLanes } = await source.skip(ownership, key, request)
    onFenced(ownership, fencedLanes)
    if (changed === 0) return { kind: 'not yet', againInMs: LOOK_AGAIN_MS }
    if (found !== null) onPublished(1, found.where)
    this.#tell(key, event, found)
    return { kind: 'goes on' }
  }

  #tell({ topic, lane }: KeyRef, event: OutboxEvent, found: Found | null): void {
    const { logger } = this.#options
    inTraceOf(event.trace, () => {
      if (found === null) {
        const nowhere = { topic, partition: null }
        logger.warn({ ...eventFields(event, nowhere), lane }, 'First event of a parked key skipped')
      } else {
        logger.warn(
          { ...eventFields(event, found.where), lane, offset: String(found.offset) },
          'An event to be skipped is on its topic: it counts as published',
        )
      }
    })
  }

  /** Where the event lies on its topic; `null` when it does not. */
  async #find(event: OutboxEvent): Promise<Found | NotYet | null> {
    const { publisher, destinations, clock, logger, draining } = this.#options
    const placed = destinations.place(event, clock.now())
    if (placed === null) return { kind: 'not yet', againInMs: destinations.nextChangeInMs() ?? LOOK_AGAIN_MS }
    const from = new Date(event.createdAt.getTime() - CLOCKS_DIFFER_MS)
    try {
      for (const where of destinations.placesOf(event, placed)) {
        const offset = await publisher.findEvent({ ...where, eventId: event.id, from }, { signal: draining })
        if (offset !== null) return { kind: 'found', where, offset }
      }
      return null
    } catch (error) {
      const { reason, partition } = error instanceof PublishError ? error : { reason: 'UNCLASSIFIED', partition: null }
      if (!draining.aborted) {
        const where = { topic: placed.topic, partition }
        inTraceOf(event.trace, () =>
          logger.warn({ ...eventFields(event, where), reason }, 'A skip waits: its partition cannot be read'),
        )
      }
      return { kind: 'not yet', againInMs: READ_AGAIN_MS }
    }
  }
}
