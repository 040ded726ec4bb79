/**
 * Sets keys aside: writes down that a key is held, moves later events of the
 * key to it, and learns which keys are held in the lanes that are ours.
 *
 * Every write goes under the lease under which its reason arose. A lane that
 * was lost and has come back may have been dealt with by others meanwhile, and
 * a key held then, unknown to us, would hide its first event but not the ones
 * behind it.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { HoldRequest, KeyRef, Ownership, RelaySource } from '../source.ts'
import { eventFields, inTraceOf } from '../telemetry/event-log.ts'
import { countRetry } from '../telemetry/measure.ts'
import type { TopicPartition } from '../transport.ts'
import type { Chores } from './chores.ts'
import type { Doubts } from './doubts.ts'
import type { Hand } from './hand.ts'
import { type HeldKeys, nameOfKey, refOf } from './held-keys.ts'

export interface HoldingOptions {
  readonly source: RelaySource
  readonly hand: Hand
  readonly heldKeys: HeldKeys
  readonly doubts: Doubts
  readonly chores: Chores
  readonly logger: Logger
  readonly onFenced: (ownership: Ownership, lanes: readonly number[]) => void
  /** Something has changed in these lanes: they are worth a look. */
  readonly onChange: (lanes: readonly number[]) => void
}

export class Holding {
  readonly #options: HoldingOptions
  /** Lanes whose held keys are to be read. */
  readonly #toLearn = new Set<number>()
  #learning = false
  /** Keys whose later events are being moved. */
  readonly #following = new Set<string>()

  constructor(options: HoldingOptions) {
    this.#options = options
  }

  /** Holds the key of an event that was refused, or parks it; the key's later events wait with it from now on. */
  hold(where: TopicPartition, event: OutboxEvent, { reason, park }: { reason: string; park: boolean }): void {
    const { source, hand, heldKeys, doubts, chores, onFenced, onChange } = this.#options
    const key = refOf(where.topic, event)
    const ownership = hand.ownership([key.lane])
    const request = heldKeys.refused(key, reason, { park, skipInMs: doubts.restMs(event) })
    // What came before it may have been accepted, and is still to be settled.
    hand.dropWhere(key.lane, (other) => other.seq >= event.seq && isOfSameKey(other, event))
    this.#tell(where, event, request)
    if (!request.park) countRetry(reason)
    chores.start(async () => {
      onFenced(ownership, (await source.hold(ownership, key, request)).fencedLanes)
      heldKeys.written(key)
      onChange([key.lane])
    })
  }

  #tell(where: TopicPartition, event: OutboxEvent, { attempts, reason, retryInMs, park }: HoldRequest): void {
    const { logger } = this.#options
    const fields = { ...eventFields(event, where), lane: event.lane, attempt: attempts, reason }
    inTraceOf(event.trace, () => {
      if (park) logger.warn(fields, 'Key parked')
      else logger.warn({ ...fields, retry_in_ms: retryInMs }, 'Key held')
    })
  }

  /** Moves the later events of a held key to it. */
  follow(key: KeyRef): void {
    const { source, hand, heldKeys, chores, onFenced, onChange } = this.#options
    const name = nameOfKey(key)
    // What is being written down takes them along.
    if (this.#following.has(name) || heldKeys.isBeingWritten(key)) return
    this.#following.add(name)
    const ownership = hand.ownership([key.lane])
    chores.start(async () => {
      const { changed, fencedLanes } = await source.holdFollowers(ownership, key)
      if (changed === 0 && !(await isHeld(source, key))) heldKeys.forgetIfResting(key)
      this.#following.delete(name)
      onFenced(ownership, fencedLanes)
      onChange([key.lane])
    })
  }

  /**
   * Learns which keys are held in `lanes` and what is asked of them; a lane may
   * be read from then on. One look at a time, so that an older answer never
   * comes after a newer one.
   */
  learn(lanes: readonly number[]): void {
    for (const lane of lanes) this.#toLearn.add(lane)
    if (this.#learning || this.#toLearn.size === 0) return
    this.#learning = true
    this.#options.chores.start(async () => {
      while (this.#toLearn.size > 0) await this.#learnOnce()
      this.#learning = false
    })
  }

  async #learnOnce(): Promise<void> {
    const { source, hand, heldKeys, onChange } = this.#options
    const { leases } = hand.ownership(this.#toLearn)
    const lanes = leases.map(({ lane }) => lane)
    this.#toLearn.clear()
    try {
      const held = lanes.length === 0 ? [] : await source.heldKeys(lanes)
      const current = leases.filter((lease) => hand.holdsUnder(lease))
      heldKeys.load(held.filter((key) => current.some(({ lane }) => lane === key.lane)))
      hand.open(current)
      onChange(lanes)
    } catch (error) {
      for (const lane of lanes) this.#toLearn.add(lane)
      throw error
    }
  }
}

function isOfSameKey(one: OutboxEvent, other: OutboxEvent): boolean {
  return (
    one.aggregate.id === other.aggregate.id && one.aggregate.type === other.aggregate.type && one.topic === other.topic
  )
}

/** Whether the database holds the key. */
export async function isHeld(source: RelaySource, key: KeyRef): Promise<boolean> {
  const held = await source.heldKeys([key.lane])
  return held.some((other) => nameOfKey(other) === nameOfKey(key))
}
