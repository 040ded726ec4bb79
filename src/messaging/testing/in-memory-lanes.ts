/** Leases of lanes in memory: who owns what, under which token, and until when. */
import type { Clock } from '../lifecycle/clock.ts'
import type { LaneState, Lease, Ownership } from '../source.ts'

interface LeaseRow {
  owner: string | null
  token: bigint
  crashes: number
  doubt: bigint
}

export class InMemoryLanes {
  readonly #clock: Clock
  readonly #leases: readonly LeaseRow[]
  readonly #expiries = new Map<string, number>()

  constructor(clock: Clock, laneCount: number) {
    this.#clock = clock
    this.#leases = Array.from({ length: laneCount }, () => ({ owner: null, token: 0n, crashes: 0, doubt: 0n }))
  }

  get states(): readonly LaneState[] {
    return this.#leases.map((lease, lane) => ({ lane, ...lease }))
  }

  get liveOwners(): readonly string[] {
    return [...this.#expiries.keys()].filter((owner) => this.#lives(owner))
  }

  renew(owner: string, leaseMs: number): void {
    this.#expiries.set(owner, this.#clock.now() + leaseMs)
  }

  /** Ends a worker's lease now, as if its time had passed. */
  expire(owner: string): void {
    if (this.#expiries.has(owner)) this.#expiries.set(owner, Number.NEGATIVE_INFINITY)
  }

  forget(owner: string): void {
    this.#expiries.delete(owner)
  }

  /** The lane's new state, or `null` when it belongs to a live worker. Taken from a dead one, it counts a crash, and all up to `horizon` is in doubt. */
  claim(owner: string, lane: number, horizon: bigint): LaneState | null {
    const lease = this.state(lane)
    if (lease.owner !== null && this.#lives(lease.owner)) return null
    if (lease.owner !== null) Object.assign(lease, { crashes: lease.crashes + 1, doubt: horizon })
    lease.owner = owner
    lease.token += 1n
    return { lane, ...lease }
  }

  release(lane: number, doubt: bigint): void {
    const lease = this.state(lane)
    Object.assign(lease, { owner: null, doubt: doubt > lease.doubt ? doubt : lease.doubt })
  }

  clearCrashes(lane: number): void {
    this.state(lane).crashes = 0
  }

  /** Those lanes of `ownership` that it still holds. */
  heldOf({ owner, leases }: Ownership): ReadonlySet<number> {
    const holds = ({ lane, token }: Lease) => this.state(lane).owner === owner && this.state(lane).token === token
    return new Set(leases.filter(holds).map(({ lane }) => lane))
  }

  state(lane: number): LeaseRow {
    const lease = this.#leases[lane]
    if (!lease) throw new RangeError(`There is no lane ${lane}`)
    return lease
  }

  #lives(owner: string): boolean {
    return (this.#expiries.get(owner) ?? Number.NEGATIVE_INFINITY) > this.#clock.now()
  }
}
