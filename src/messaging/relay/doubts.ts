/**
 * Which events may be on their topic without our knowing: they were in a send
 * whose outcome is unknown, or an earlier owner of their lane vanished with them.
 *
 * One number a lane is kept, that of the last such event. So too many are
 * doubted and never too few; a doubt costs no more than a look at the partition,
 * and only where an operator wants the event skipped.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { LaneGrant } from '../source.ts'

/**
 * Milliseconds for what has left to arrive and to be seen: a replica that has
 * not copied it by then no longer counts as in sync (`replica.lag.time.max.ms`).
 */
const MARGIN_MS = 30_000

/** Milliseconds by which a relay with other settings may have an event wait for longer than ours do. */
const OTHER_SETTINGS_MS = 600_000

export interface DoubtsOptions {
  readonly clock: Clock
  /** For how long a send that has begun may go on. */
  readonly deliveryTimeoutMs: number
  /** For how long after its last renewal a worker may begin one. */
  readonly leaseMs: number
}

interface Doubt {
  readonly seq: bigint
  /** When it arose, or was heard of, on the relay's clock. */
  readonly at: number
}

export class Doubts {
  readonly #clock: Clock
  readonly #restMs: number
  readonly #lanes = new Map<number, Doubt>()

  constructor({ clock, deliveryTimeoutMs, leaseMs }: DoubtsOptions) {
    this.#clock = clock
    this.#restMs = deliveryTimeoutMs + leaseMs + MARGIN_MS
  }

  /** Milliseconds for which the skip of an event waits at the very most, whichever relay has parked its key. */
  get longestMs(): number {
    return this.#restMs + OTHER_SETTINGS_MS
  }

  /** Takes over what earlier owners have left. */
  inherit(grants: readonly LaneGrant[]): void {
    for (const { lane, doubt } of grants) if (doubt > 0n) this.#add(lane, doubt)
  }

  /** Notes that a send has ended, and nobody knows how. */
  unknown(events: readonly OutboxEvent[]): void {
    for (const { lane, seq } of events) this.#add(lane, seq)
  }

  /** The last event of a lane that is in doubt, by `seq`; 0 when there is none. */
  of(lane: number): bigint {
    return this.#lanes.get(lane)?.seq ?? 0n
  }

  has({ lane, seq }: OutboxEvent): boolean {
    return seq <= this.of(lane)
  }

  /** Milliseconds until nothing that was sent can bring `event` any more; 0 when it is not in doubt. */
  restMs(event: OutboxEvent): number {
    const doubt = this.#lanes.get(event.lane)
    if (doubt === undefined || event.seq > doubt.seq) return 0
    return Math.max(0, doubt.at + this.#restMs - this.#clock.now())
  }

  #add(lane: number, seq: bigint): void {
    const known = this.of(lane)
    this.#lanes.set(lane, { seq: seq > known ? seq : known, at: this.#clock.now() })
  }
}
