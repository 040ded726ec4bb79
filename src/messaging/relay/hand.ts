/**
 * What a worker has in hand: its lanes, and the events that it has read of them
 * and not settled yet.
 *
 * An event leaves the hand when it is settled, when its destination fails (it
 * is read again later), or when its lane is lost. Only what is not in hand is
 * read, so nothing is published twice without a fault.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { LaneGrant, Lease, Ownership } from '../source.ts'
import { approximateBytes } from './record.ts'

/** An event in hand, with the lease under which it was read. */
export interface HandEvent {
  readonly event: OutboxEvent
  readonly token: bigint
  readonly bytes: number
}

/** What to read of one lane. */
export interface ReadPlan {
  readonly lane: number
  readonly limit: number
}

interface LaneInHand {
  grant: LaneGrant
  /** Events in hand, by `seq`. */
  readonly events: Map<bigint, HandEvent>
  /** Whether it may be read: its held keys are known, or their later events would overtake them. */
  open: boolean
  /** Whether there may be something to read. */
  dirty: boolean
  /** How many events the next read asks for: doubles while the lane comes back full. */
  depth: number
  /** Until when it is not read for new events alone, on the relay's clock. */
  quietUntil: number
  yielding: boolean
}

/** How many events are read of a lane of which nothing is known. */
const FIRST_DEPTH = 16

/** From this many crashes of its owners on, a lane's events go one by one. */
const SOLO_CRASHES = 3

export class Hand {
  #owner = ''
  #bytes = 0
  #count = 0
  readonly #lanes = new Map<number, LaneInHand>()

  get owner(): string {
    return this.#owner
  }

  /** How many events are in hand. */
  get count(): number {
    return this.#count
  }

  /** Bytes of the events in hand. */
  get bytes(): number {
    return this.#bytes
  }

  get lanes(): readonly number[] {
    return [...this.#lanes.keys()]
  }

  /** Takes over the lanes that the relay says are ours; returns those that were lost and those that are new. */
  assign(owner: string, grants: readonly LaneGrant[]): { lost: readonly number[]; gained: readonly LaneGrant[] } {
    this.#owner = owner
    const tokens = new Map(grants.map(({ lane, token }) => [lane, token]))
    const lost = [...this.#lanes].flatMap(([lane, { grant }]) => (tokens.get(lane) === grant.token ? [] : [lane]))
    for (const lane of lost) this.lose(lane)
    const gained = grants.filter(({ lane }) => !this.#lanes.has(lane))
    for (const grant of gained) {
      this.#lanes.set(grant.lane, {
        grant,
        events: new Map(),
        open: false,
        dirty: true,
        depth: FIRST_DEPTH,
        quietUntil: Number.NEGATIVE_INFINITY,
        yielding: false,
      })
    }
    return { lost, gained }
  }

  /** Forgets a lane and all of it that is in hand. */
  lose(lane: number): void {
    const state = this.#lanes.get(lane)
    if (state === undefined) return
    for (const held of state.events.values()) this.#discount(held)
    this.#lanes.delete(lane)
  }

  /** Lets lanes be read, once their held keys are known. */
  open(grants: readonly Lease[]): void {
    for (const { lane, token } of grants) {
      const state = this.#lanes.get(lane)
      if (state?.grant.token === token) state.open = true
    }
  }

  holds(lane: number): boolean {
    return this.#lanes.has(lane)
  }

  /** The lease under which a lane is ours; `null` when it is not. */
  leaseOf(lane: number): Lease | null {
    return this.#lanes.get(lane)?.grant ?? null
  }

  /** Whether the lane is still ours under this very lease: it may have been lost and come back. */
  holdsUnder({ lane, token }: Lease): boolean {
    return this.#lanes.get(lane)?.grant.token === token
  }

  /** Marks lanes as having something that can be read now. */
  touch(lanes: readonly number[]): void {
    this.stir(lanes)
    this.quiet(lanes, Number.NEGATIVE_INFINITY)
  }

  /** Marks lanes as having new events. A quiet one is read later all the same. */
  stir(lanes: readonly number[]): void {
    for (const lane of lanes) {
      const state = this.#lanes.get(lane)
      if (state !== undefined) state.dirty = true
    }
  }

  /** Lets lanes rest from new events until `until`. */
  quiet(lanes: readonly number[], until: number): void {
    for (const lane of lanes) {
      const state = this.#lanes.get(lane)
      if (state !== undefined) state.quietUntil = until
    }
  }

  /** Reads nothing more of these lanes. */
  yield(lanes: readonly number[]): void {
    for (const lane of lanes) {
      const state = this.#lanes.get(lane)
      if (state !== undefined) state.yielding = true
    }
  }

  /** The yielding lanes of which nothing is in hand any more. */
  yielded(): readonly Lease[] {
    return [...this.#lanes.values()].flatMap(({ yielding, events, grant }) =>
      yielding && events.size === 0 ? [grant] : [],
    )
  }

  /**
   * What to read next: lanes that may have something, at most `limit.lanes` of
   * them in turn, each with its share of `limit.events`. They count as read from
   * now on; a wake during the read makes them dirty again.
   */
  plan(now: number, limit: { readonly events: number; readonly lanes: number }): ReadPlan[] {
    const wanted = this.#wanted(now).slice(0, limit.lanes)
    const total = wanted.reduce((sum, { depth }) => sum + depth, 0)
    const scale = Math.min(1, limit.events / Math.max(1, total))
    return wanted.map((state) => {
      const { lane } = state.grant
      state.dirty = false
      // To the end of the line, for when there are more than can be read at once.
      this.#lanes.delete(lane)
      this.#lanes.set(lane, state)
      return { lane, limit: this.goesAlone(lane) ? 1 : Math.max(1, Math.floor(state.depth * scale)) }
    })
  }

  /** Whether any lane is worth a read. */
  wantsRead(now: number): boolean {
    return this.#wanted(now).length > 0
  }

  /** Whether the lane's events go one by one, since its owners keep dying. */
  goesAlone(lane: number): boolean {
    return (this.#lanes.get(lane)?.grant.crashes ?? 0) >= SOLO_CRASHES
  }

  /**
   * Learns from a read how much to ask for next. A lane that came back full is
   * read again, deeper; so is one that the byte limit may have cut short.
   */
  learn(plan: readonly ReadPlan[], events: readonly OutboxEvent[], maxBytesPerLane: number, maxDepth: number): void {
    const got = new Map(plan.map(({ lane }) => [lane, { count: 0, bytes: 0 }]))
    for (const { lane, payload } of events) {
      const seen = got.get(lane)
      if (seen === undefined) continue
      seen.count += 1
      seen.bytes += payload === null ? 0 : Buffer.byteLength(payload)
    }
    for (const { lane, limit } of plan) {
      const state = this.#lanes.get(lane)
      const { count, bytes } = got.get(lane) ?? { count: 0, bytes: 0 }
      if (state === undefined) continue
      if (count < limit && !(count > 0 && bytes * 2 >= maxBytesPerLane)) {
        state.depth = FIRST_DEPTH
        continue
      }
      state.dirty = true
      state.depth = Math.min(maxDepth, Math.max(state.depth, limit) * 2)
    }
  }

  /** Takes an event in hand that was read under `lease`; `null` when that has ended or it is in hand already. */
  take(event: OutboxEvent, { token }: Lease): HandEvent | null {
    const state = this.#lanes.get(event.lane)
    if (state?.grant.token !== token || state.events.has(event.seq)) return null
    const taken = { event, token, bytes: approximateBytes(event) }
    state.events.set(event.seq, taken)
    this.#bytes += taken.bytes
    this.#count += 1
    return taken
  }

  /** Lets an event go: settled, or to be read again. */
  drop(taken: HandEvent): void {
    const events = this.#lanes.get(taken.event.lane)?.events
    if (events?.get(taken.event.seq) !== taken) return
    events.delete(taken.event.seq)
    this.#discount(taken)
  }

  /** Lets all of a lane's events go that `belongs` names. */
  dropWhere(lane: number, belongs: (event: OutboxEvent) => boolean): void {
    for (const taken of this.#lanes.get(lane)?.events.values() ?? []) if (belongs(taken.event)) this.drop(taken)
  }

  /** Whether an event is still in hand under the lease it was read under. */
  has(taken: HandEvent): boolean {
    return this.#lanes.get(taken.event.lane)?.events.get(taken.event.seq) === taken
  }

  /** The last event of a lane in hand, by `seq`; 0 when there is none. */
  lastOf(lane: number): bigint {
    let last = 0n
    for (const seq of this.#lanes.get(lane)?.events.keys() ?? []) if (seq > last) last = seq
    return last
  }

  /** Whether an event of the lane is in hand that `belongs` names. */
  some(lane: number, belongs: (event: OutboxEvent) => boolean): boolean {
    return [...(this.#lanes.get(lane)?.events.values() ?? [])].some(({ event }) => belongs(event))
  }

  /** The `seq` of all that is in hand of these lanes. */
  inHand(plan: readonly ReadPlan[]): bigint[] {
    return plan.flatMap(({ lane }) => [...(this.#lanes.get(lane)?.events.keys() ?? [])])
  }

  /** The lanes, among those just read, of which everything that was pending at their takeover is settled. */
  recovered(plan: readonly ReadPlan[], events: readonly OutboxEvent[]): readonly number[] {
    const waiting = new Set<number>()
    for (const { lane, seq } of events) if (seq <= (this.#lanes.get(lane)?.grant.horizon ?? 0n)) waiting.add(lane)
    return plan.flatMap(({ lane }) => {
      const state = this.#lanes.get(lane)
      if (state === undefined || state.grant.crashes === 0 || waiting.has(lane)) return []
      const { horizon } = state.grant
      return [...state.events.keys()].every((seq) => seq > horizon) ? [lane] : []
    })
  }

  /** Notes that a lane's crash count was reset. */
  cleared(lane: number): void {
    const state = this.#lanes.get(lane)
    if (state !== undefined) state.grant = { ...state.grant, crashes: 0 }
  }

  /** The leases for these lanes, in lane order, as fenced writes present them. */
  ownership(lanes: Iterable<number>): Ownership {
    const leases = [...new Set(lanes)].sort((a, b) => a - b).flatMap((lane) => this.#lanes.get(lane)?.grant ?? [])
    return { owner: this.#owner, leases }
  }

  #wanted(now: number): LaneInHand[] {
    return [...this.#lanes.values()].filter((state) => state.quietUntil <= now && isWanted(state))
  }

  #discount(taken: HandEvent): void {
    this.#bytes -= taken.bytes
    this.#count -= 1
  }
}

function isWanted({ open, dirty, yielding, grant, events }: LaneInHand): boolean {
  return open && dirty && !yielding && (grant.crashes < SOLO_CRASHES || events.size === 0)
}
