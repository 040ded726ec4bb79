/**
 * Where the relay's events come from: the third port. Types only.
 *
 * The relay reads a batch of its lanes and settles it; whether rows are marked,
 * deleted or merely passed in a log is the source's business. Every write
 * presents the lease under which it is made, and changes nothing when that
 * lease is gone.
 */
import type { OutboxEvent } from './envelope.ts'
import type { TopicPartition } from './transport.ts'

/** One worker's right to a lane. `token` grows with each change of owner. */
export interface Lease {
  readonly lane: number
  readonly token: bigint
}

/** The leases under which one worker acts. */
export interface Ownership {
  /** The worker's uuid. A token number alone can be given out twice after a failover. */
  readonly owner: string
  readonly leases: readonly Lease[]
}

/** A slice of the backlog that a read leaves out. */
export type Exclusion =
  | { readonly kind: 'topic'; readonly aggregateTypes: readonly string[]; readonly topic: string }
  | {
      readonly kind: 'partition'
      readonly aggregateTypes: readonly string[]
      readonly topic: string
      readonly partition: number
      readonly partitionCount: number
    }

export interface ReadRequest {
  readonly lanes: readonly number[]
  readonly perLane: number
  /** Bytes of payload and headers after which a lane's read ends; at least one event is read. */
  readonly maxBytes: number
  /** Events read before and not settled yet, by `seq`: left out. */
  readonly inHand: readonly bigint[]
  readonly exclusions: readonly Exclusion[]
}

/** A key: what is held, parked and resumed as one. */
export interface HeldKeyRef {
  readonly lane: number
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
}

/** A key whose first event was refused. Its later events wait with it. */
export interface HeldKey extends HeldKeyRef {
  readonly state: 'backoff' | 'parked'
  readonly attempts: number
  /** Milliseconds until the next attempt, on the database's clock at the time of reading; 0 when due. */
  readonly dueInMs: number
  readonly reason: string
}

/** What a fenced write did. */
export interface Settlement {
  /** How many rows changed. */
  readonly changed: number
  /** Lanes whose lease was no longer held: nothing of theirs changed. */
  readonly fencedLanes: readonly number[]
}

/** Events for one relay worker. */
export interface RelaySource {
  /** The oldest pending events of each lane, in append order within a lane, none that is held. */
  read(request: ReadRequest): Promise<readonly OutboxEvent[]>
  /** Settles published events. */
  settle(ownership: Ownership, events: readonly OutboxEvent[]): Promise<Settlement>
  /** Sets a key aside after its first event was refused, or counts one more attempt; its pending events become held. */
  hold(ownership: Ownership, key: HeldKeyRef, failure: HoldRequest): Promise<Settlement>
  /** The keys held in these lanes. */
  heldKeys(lanes: readonly number[]): Promise<readonly HeldKey[]>
  /** A held key's events in append order, at most `limit`, including those that arrived since. */
  readHeld(ownership: Ownership, key: HeldKeyRef, limit: number): Promise<readonly OutboxEvent[]>
  /** Lets a key go once no held event of it is left; resolves to whether it did. */
  releaseKey(ownership: Ownership, key: HeldKeyRef): Promise<boolean>
  /** Counts one attempt on an event before it is sent, for lanes whose owners keep dying. Resolves to the count. */
  recordAttempt(ownership: Ownership, event: OutboxEvent): Promise<number>
}

/** Why and for how long a key is held. */
export interface HoldRequest {
  readonly reason: string
  /** Milliseconds until the next attempt. */
  readonly retryInMs: number
  /** Park instead of trying again. */
  readonly park: boolean
}

/** One lane as the directory sees it. */
export interface LaneState extends Lease {
  /** Whose lane it is; `null` when free. */
  readonly owner: string | null
  /** How often an owner vanished without releasing it, since it was last clean. */
  readonly crashes: number
}

/** What a renewal found. */
export interface DirectoryView {
  readonly lanes: readonly LaneState[]
  /** Workers alive on the database's clock, the renewed ones included. */
  readonly liveOwners: readonly string[]
  /** Lanes with pending events, among those asked for. */
  readonly pendingLanes: readonly number[]
}

/** Who owns which lane. Used by the relay's main thread, for all of its workers in one statement. */
export interface LaneDirectory {
  /** Extends the life of `owners` by `leaseMs` and shows all lanes and live workers. */
  renew(owners: readonly string[], leaseMs: number): Promise<Omit<DirectoryView, 'pendingLanes'>>
  /** Which of `lanes` have pending events. */
  pendingLanes(lanes: readonly number[]): Promise<readonly number[]>
  /** Takes lanes that are free or whose owner has expired; resolves to those got, with their new tokens. */
  claim(owner: string, lanes: readonly number[]): Promise<readonly LaneState[]>
  /** Gives lanes back, fenced. */
  release(ownership: Ownership): Promise<void>
  /** Removes a worker that has stopped, after its lanes were released. */
  retire(owner: string): Promise<void>
  /** Resets a lane's crash count, fenced. */
  clearCrashes(ownership: Ownership): Promise<void>
}

/** The partition counts that all relays use alike. */
export interface TopicRegistry {
  /** The recorded count; records `partitionCount` if there is none yet and it is given. */
  partitionCount(topic: string): Promise<number | null>
  record(topic: string, partitionCount: number): Promise<number>
}

/** Why a topic or a partition of it rests, for readiness. */
export interface PausedDestination extends Partial<Pick<TopicPartition, 'partition'>> {
  readonly topic: string
  readonly kind: 'outage' | 'destination'
  readonly reason: string
}
