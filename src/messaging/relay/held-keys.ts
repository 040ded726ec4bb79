/**
 * The keys whose first event was refused, as their lanes' owner sees them.
 *
 * A held key's events wait in the held part of the outbox and are published
 * straight from there, in append order: the first alone, and the rest once it
 * was accepted. Nothing goes back to the pending part, so no later event of the
 * key can come before them. After the stated attempts the key is parked, and
 * waits for an operator.
 */
import type { OutboxEvent } from '../envelope.ts'
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { HeldKey, HoldRequest, KeyRef } from '../source.ts'
import type { HeldKeySummary } from './protocol.ts'

/** Ten attempts of these pauses take about four minutes. */
const heldBackoff: Backoff = { firstMs: 1_000, maxMs: 60_000 }

interface State {
  readonly ref: KeyRef
  state: 'backoff' | 'parked'
  attempts: number
  reason: string
  dueAt: number
  /** Its held events are being published, or its state is being written down: nothing else begins with it. */
  running: boolean
}

export class HeldKeys {
  readonly #keys = new Map<string, State>()
  readonly #maxAttempts: number
  readonly #clock: Clock

  constructor({ maxAttempts, clock }: { maxAttempts: number; clock: Clock }) {
    this.#maxAttempts = maxAttempts
    this.#clock = clock
  }

  /** Whether an event's key is held, so that the event has to wait with it. */
  has(topic: string, event: OutboxEvent): boolean {
    return this.#keys.size > 0 && this.#keys.has(keyOf(refOf(topic, event)))
  }

  /** Takes in what the database says of the lanes. A request makes a key due: `resume` a parked one, `retry_now` one in back-off. */
  load(held: readonly HeldKey[]): void {
    for (const key of held) {
      const known = this.#keys.get(keyOf(key))
      if (known?.running) continue
      const resumed = key.request === 'resume' || (key.request === 'retry_now' && key.state === 'backoff')
      this.#keys.set(keyOf(key), {
        ref: { lane: key.lane, topic: key.topic, aggregateType: key.aggregateType, aggregateId: key.aggregateId },
        state: resumed ? 'backoff' : key.state,
        // A resumed key begins anew, or its first refusal would park it at once.
        attempts: resumed && key.state === 'parked' ? 0 : key.attempts,
        reason: key.reason,
        dueAt: this.#clock.now() + (resumed ? 0 : key.dueInMs),
        running: false,
      })
    }
  }

  /** Forgets the keys of lanes that are ours no longer. */
  forgetLanes(lanes: readonly number[]): void {
    for (const [key, { ref }] of this.#keys) if (lanes.includes(ref.lane)) this.#keys.delete(key)
  }

  forget(ref: KeyRef): void {
    this.#keys.delete(keyOf(ref))
  }

  /**
   * Counts a refusal of the key's first event; the answer is what to write down.
   * The key rests until `written` says that this is done.
   */
  refused(ref: KeyRef, reason: string, { park = false }: { park?: boolean } = {}): HoldRequest {
    const attempts = (this.#keys.get(keyOf(ref))?.attempts ?? 0) + 1
    const parked = park || attempts >= this.#maxAttempts
    const retryInMs = backoffMs(heldBackoff, attempts, this.#clock.random())
    const dueAt = this.#clock.now() + retryInMs
    this.#keys.set(keyOf(ref), { ref, state: parked ? 'parked' : 'backoff', attempts, reason, dueAt, running: true })
    return { attempts, reason, retryInMs, park: parked }
  }

  /** Notes that the database knows of the refusal. */
  written(ref: KeyRef): void {
    const state = this.#keys.get(keyOf(ref))
    if (state !== undefined) state.running = false
  }

  /** Notes that the key's first event got through: the next one's attempts begin anew. */
  accepted(ref: KeyRef): void {
    const state = this.#keys.get(keyOf(ref))
    if (state !== undefined) state.attempts = 0
  }

  /** The keys that are due, now marked as running. */
  takeDue(): readonly KeyRef[] {
    const now = this.#clock.now()
    const due = [...this.#keys.values()].filter(
      ({ state, running, dueAt }) => state === 'backoff' && !running && dueAt <= now,
    )
    for (const state of due) state.running = true
    return due.map(({ ref }) => ref)
  }

  /** Ends a run that came to nothing, through no fault of the event: it is tried again after `ms`, at no cost of attempts. */
  postpone(ref: KeyRef, ms: number): void {
    const state = this.#keys.get(keyOf(ref))
    if (state === undefined) return
    state.running = false
    state.dueAt = this.#clock.now() + ms
  }

  /** Milliseconds until a key is due; `null` when none will be. */
  nextDueInMs(): number | null {
    const waits = [...this.#keys.values()].flatMap(({ state, running, dueAt }) =>
      state === 'backoff' && !running ? [dueAt] : [],
    )
    return waits.length === 0 ? null : Math.max(0, Math.min(...waits) - this.#clock.now())
  }

  get count(): number {
    return this.#keys.size
  }

  /** The first `limit` of them, for readiness. */
  summary(limit: number): readonly HeldKeySummary[] {
    return [...this.#keys.values()].slice(0, limit).map(({ ref, state, attempts, reason }) => ({
      topic: ref.topic,
      aggregateType: ref.aggregateType,
      aggregateId: ref.aggregateId,
      state,
      attempts,
      reason,
    }))
  }
}

/** The key of `event` on `topic`. */
export function refOf(topic: string, event: OutboxEvent): KeyRef {
  return { lane: event.lane, topic, aggregateType: event.aggregate.type, aggregateId: event.aggregate.id }
}

function keyOf({ topic, aggregateType, aggregateId }: KeyRef): string {
  return JSON.stringify([topic, aggregateType, aggregateId])
}
