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

const NEVER = Number.NEGATIVE_INFINITY

/** What is to be done with a key that is due. */
export interface DueKey {
  readonly ref: KeyRef
  /** `resume` and `skip` are what an operator asked of a parked key. */
  readonly task: 'publish' | 'resume' | 'skip'
  /** Attempts spent on its first event. */
  readonly attempts: number
  readonly reason: string
}

interface State {
  readonly ref: KeyRef
  readonly state: 'backoff' | 'parked'
  /** `null` while the key waits for an operator. */
  task: DueKey['task'] | null
  attempts: number
  readonly reason: string
  dueAt: number
  /** Until when a skip waits whose time lies further ahead than any wait; `null` where it does not. */
  waitedUntil: number | null
  /** Until when a run that came to nothing is not begun again, whatever the database says. */
  postponedUntil: number
  /** Nothing else begins with a key whose task is being carried out, or whose state is being written down. */
  phase: 'resting' | 'running' | 'writing'
}

export interface HeldKeysOptions {
  /** Attempts after which a key is parked. */
  readonly maxAttempts: number
  /** Milliseconds for which the skip of a parked key's first event waits at the very most. */
  readonly longestSkipMs: number
  readonly clock: Clock
}

export class HeldKeys {
  readonly #keys = new Map<string, State>()
  readonly #maxAttempts: number
  readonly #longestSkipMs: number
  readonly #clock: Clock

  constructor({ maxAttempts, longestSkipMs, clock }: HeldKeysOptions) {
    this.#maxAttempts = maxAttempts
    this.#longestSkipMs = longestSkipMs
    this.#clock = clock
  }

  /** Whether an event's key is held, so that the event has to wait with it. */
  has(topic: string, event: OutboxEvent): boolean {
    return this.#keys.size > 0 && this.#keys.has(nameOfKey(refOf(topic, event)))
  }

  /** Whether the database may not know yet that the key is held. */
  isBeingWritten(ref: KeyRef): boolean {
    return this.#keys.get(nameOfKey(ref))?.phase === 'writing'
  }

  /** Takes in what the database says. A request makes a key due: `resume` and `skip` a parked one, `retry_now` one in back-off. */
  load(held: readonly HeldKey[]): void {
    for (const key of held) {
      const known = this.#keys.get(nameOfKey(key))
      if (known !== undefined && known.phase !== 'resting') continue
      const waitedUntil = this.#isTooFarAhead(key)
        ? (known?.waitedUntil ?? this.#clock.now() + this.#longestSkipMs)
        : null
      const task = taskOf(key)
      const postponedUntil = known?.task === task ? known.postponedUntil : NEVER
      this.#keys.set(nameOfKey(key), {
        ref: { lane: key.lane, topic: key.topic, aggregateType: key.aggregateType, aggregateId: key.aggregateId },
        state: key.state,
        task,
        attempts: key.attempts,
        reason: key.reason,
        dueAt: Math.max(postponedUntil, this.#dueAt(key, waitedUntil)),
        waitedUntil,
        postponedUntil,
        phase: 'resting',
      })
    }
  }

  /** Whether a skip would wait for a time that the database's clock was set back from. */
  #isTooFarAhead({ state, dueInMs }: HeldKey): boolean {
    return state === 'parked' && dueInMs > this.#longestSkipMs
  }

  /** A skip that would wait too long waits once for as long as any may have to, from when its key was first seen so. */
  #dueAt(key: HeldKey, waitedUntil: number | null): number {
    const now = this.#clock.now()
    if (key.request === 'resume' || key.request === 'retry_now') return now
    return waitedUntil ?? now + restOf(key)
  }

  /** Forgets the keys of these lanes. */
  forgetLanes(lanes: readonly number[]): void {
    for (const [key, { ref }] of this.#keys) if (lanes.includes(ref.lane)) this.#keys.delete(key)
  }

  forget(ref: KeyRef): void {
    this.#keys.delete(nameOfKey(ref))
  }

  /** Forgets a key of which the database says that it is not held; not one that is being dealt with. */
  forgetIfResting(ref: KeyRef): void {
    if (this.#keys.get(nameOfKey(ref))?.phase === 'resting') this.forget(ref)
  }

  /**
   * Counts a refusal of the key's first event; the answer is what to write down.
   * The key rests until `written` says that this is done. For `skipInMs` the
   * first event of a parked key is not skipped: what was sent may still bring it.
   */
  refused(ref: KeyRef, reason: string, { park, skipInMs }: { park: boolean; skipInMs: number }): HoldRequest {
    const attempts = (this.#keys.get(nameOfKey(ref))?.attempts ?? 0) + 1
    const parked = park || attempts >= this.#maxAttempts
    const retryInMs = parked ? Math.ceil(skipInMs) : backoffMs(heldBackoff, attempts, this.#clock.random())
    this.#keys.set(nameOfKey(ref), {
      ref,
      state: parked ? 'parked' : 'backoff',
      task: parked ? null : 'publish',
      attempts,
      reason,
      dueAt: this.#clock.now() + retryInMs,
      waitedUntil: null,
      postponedUntil: NEVER,
      phase: 'writing',
    })
    return { attempts, reason, retryInMs, park: parked }
  }

  /** Notes that the database knows of the refusal. */
  written(ref: KeyRef): void {
    const state = this.#keys.get(nameOfKey(ref))
    if (state?.phase === 'writing') state.phase = 'resting'
  }

  /** Notes that the key's first event got through, or that an operator lets it go on: attempts begin anew. */
  goesOn({ ref, reason }: Pick<DueKey, 'ref' | 'reason'>): void {
    const known = this.#keys.get(nameOfKey(ref))
    if (known === undefined) return
    this.#keys.set(nameOfKey(ref), { ...known, state: 'backoff', task: 'publish', attempts: 0, reason })
  }

  /** The keys that are due, at most `limit`, the longest due first, now marked as running. */
  takeDue(limit: number): readonly DueKey[] {
    if (limit <= 0 || this.#keys.size === 0) return []
    const now = this.#clock.now()
    const due = [...this.#keys.values()]
      .filter(({ task, phase, dueAt }) => task !== null && phase === 'resting' && dueAt <= now)
      .sort((a, b) => a.dueAt - b.dueAt)
      .slice(0, limit)
    return due.flatMap((state) => {
      if (state.task === null) return []
      state.phase = 'running'
      return [{ ref: state.ref, task: state.task, attempts: state.attempts, reason: state.reason }]
    })
  }

  /** Ends a run that came to nothing, through no fault of the event: it is tried again after `ms`, at no cost of attempts. */
  postpone(ref: KeyRef, ms: number): void {
    const state = this.#keys.get(nameOfKey(ref))
    if (state === undefined) return
    state.phase = 'resting'
    state.dueAt = this.#clock.now() + ms
    state.postponedUntil = state.dueAt
  }

  /** Milliseconds until a key is due; `null` when none will be. */
  nextDueInMs(): number | null {
    let next = Number.POSITIVE_INFINITY
    for (const { task, phase, dueAt } of this.#keys.values())
      if (task !== null && phase === 'resting') next = Math.min(next, dueAt)
    return next === Number.POSITIVE_INFINITY ? null : Math.max(0, next - this.#clock.now())
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

/** One string for a key. */
export function nameOfKey({ topic, aggregateType, aggregateId }: KeyRef): string {
  return JSON.stringify([topic, aggregateType, aggregateId])
}

function taskOf({ state, request }: HeldKey): DueKey['task'] | null {
  if (state === 'backoff') return 'publish'
  return request === 'resume' || request === 'skip' ? request : null
}

/** None where a back-off is longer than any: it ends in a time that the database's clock was set back from. */
function restOf({ state, dueInMs }: HeldKey): number {
  return state === 'backoff' && dueInMs > heldBackoff.maxMs ? 0 : dueInMs
}
