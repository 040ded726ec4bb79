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

/** A part of the backlog that a read leaves out: all of a topic, or one partition of it. */
export interface Exclusion {
  readonly topic: string
  /** The aggregate types that the topic rule sends to `topic`, as far as they are known. */
  readonly aggregateTypes: readonly string[]
  /** `null` leaves out the whole topic. */
  readonly partition: { readonly number: number; readonly count: number } | null
}

export interface ReadRequest {
  /** Which lanes, and at most how many events of each. */
  readonly lanes: readonly { readonly lane: number; readonly limit: number }[]
  /** Bytes of payload after which a lane's read ends; at least one event of a lane is read. */
  readonly maxBytesPerLane: number
  /** Events read before and not settled yet, by `seq`: left out. */
  readonly inHand: readonly bigint[]
  readonly exclusions: readonly Exclusion[]
}

/** A key: what is held, parked and resumed as one. */
export interface KeyRef {
  readonly lane: number
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
}

/** A key whose first event was refused. Its later events wait with it. */
export interface HeldKey extends KeyRef {
  readonly state: 'backoff' | 'parked'
  readonly attempts: number
  /**
   * Milliseconds until the next attempt, on the database's clock at the time of
   * reading; 0 when due. Of a parked key: until its first event may be skipped.
   */
  readonly dueInMs: number
  readonly reason: string
  /** What an operator asked for; `null` when nothing. */
  readonly request: 'resume' | 'skip' | 'retry_now' | null
}

/** Why a key is held and what happens next. */
export interface HoldRequest {
  /** Attempts spent on the key's first event so far, this one included. */
  readonly attempts: number
  readonly reason: string
  /** Milliseconds until the next attempt, or until a parked key's first event may be skipped. */
  readonly retryInMs: number
  /** Park the key: it waits for an operator. */
  readonly park: boolean
}

/** How much of a held key is read at once. */
export interface HeldLimit {
  readonly count: number
  readonly bytes: number
}

/** What is to become of a parked event that an operator wants skipped. */
export interface SkipRequest {
  /** The key's first event. */
  readonly eventId: string
  /** It was found on its topic: an earlier send had been applied, and it counts as published. */
  readonly published: boolean
  /**
   * Milliseconds for which a skip waits at the very most. A time that lies
   * further ahead is from before the database's clock was set back, and counts
   * as come: who asks has waited for so long by a clock of its own.
   */
  readonly longestWaitMs: number
}

/** A lane that is given back. */
export interface LaneRelease extends Lease {
  /** Every event of the lane that was in a send of unknown outcome has a `seq` up to this one; 0 when none was. */
  readonly doubt: bigint
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
  /**
   * The oldest pending events of each lane that `ownership` still holds, in
   * append order within a lane, none that is held. A worker that has lost a lane
   * would find events behind one that its successor holds, and publish them
   * before it.
   */
  read(ownership: Ownership, request: ReadRequest): Promise<readonly OutboxEvent[]>
  /** Settles published events, held ones too. */
  settle(ownership: Ownership, events: readonly OutboxEvent[]): Promise<Settlement>

  /**
   * Sets a key aside after its first event was refused, or counts one more
   * attempt, and answers a request if there was one; but parking a key again
   * that is parked alike repeats a call whose answer was lost, and leaves a
   * request as it is. The key's pending events become held.
   */
  hold(ownership: Ownership, key: KeyRef, request: HoldRequest): Promise<Settlement>
  /** Makes the key's events that have arrived since held as well; changes nothing when the key is held no longer. */
  holdFollowers(ownership: Ownership, key: KeyRef): Promise<Settlement>
  /** The relay's held keys in these lanes. */
  heldKeys(lanes: readonly number[]): Promise<readonly HeldKey[]>
  /** A held key's events in append order, at most `limit.count`, ending at `limit.bytes` of payload; one at least. */
  readHeld(key: KeyRef, limit: HeldLimit): Promise<readonly OutboxEvent[]>
  /**
   * Leaves a parked key's first event out for good, where that is what an
   * operator asked for and its time has come: the event counts as skipped, or as
   * published where it was found on its topic, and the key is in back-off and
   * due. Changes nothing otherwise.
   */
  skip(ownership: Ownership, key: KeyRef, request: SkipRequest): Promise<Settlement>
  /**
   * Lets a parked key go on from its first event, where `asked` is what an
   * operator asks for by now: it is in back-off and due, with attempts counted
   * anew. Changes nothing otherwise: another request may have taken its place.
   */
  goOn(ownership: Ownership, key: KeyRef, asked: 'resume' | 'skip'): Promise<Settlement>
  /** Lets a key go once no held event of it is left; resolves to whether it did. */
  releaseKey(ownership: Ownership, key: KeyRef): Promise<boolean>

  /** Counts one attempt on an event before it is sent, for lanes whose owners keep dying. Resolves to the count; 0 when fenced. */
  recordAttempt(ownership: Ownership, event: OutboxEvent): Promise<number>
  /** Sets the count back to 0: the owner has survived the send, whatever came of it. */
  clearAttempts(ownership: Ownership, event: OutboxEvent): Promise<Settlement>
  /** Resets a lane's crash count. */
  clearCrashes(ownership: Ownership): Promise<Settlement>
  /** Gives lanes back, with what their next owners have to doubt. */
  release(owner: string, lanes: readonly LaneRelease[]): Promise<Settlement>
}

/** A lane as its owner gets it. */
export interface LaneGrant extends Lease {
  /** How often an owner vanished without releasing the lane since it was last clean. */
  readonly crashes: number
  /** Every event that was pending at the takeover has a `seq` up to this one. */
  readonly horizon: bigint
  /**
   * Every event that an earlier owner may have sent without knowing what came
   * of it has a `seq` up to this one; 0 when there is none. Never falls.
   */
  readonly doubt: bigint
}

/** A lane as the directory shows it. */
export interface LaneState extends Lease {
  /** Whose lane it is; `null` when free. */
  readonly owner: string | null
  readonly crashes: number
  /** As in {@link LaneGrant}. */
  readonly doubt: bigint
}

/** A topic whose partition count was changed once, or is being changed. */
export interface AdoptedTopic {
  readonly topic: string
  /** The count in force. */
  readonly partitionCount: number
  /** While a new count is adopted nothing is sent to the topic; this names the adoption. `null` when there is none. */
  readonly adoption: string | null
}

/** What a renewal found. */
export interface DirectoryView {
  readonly lanes: readonly LaneState[]
  /** Workers alive on the database's clock, the renewed ones included. */
  readonly liveOwners: readonly string[]
  /** Lanes in which an operator has asked something of a held key. */
  readonly requestedLanes: readonly number[]
  /** Topics whose partition count was changed once, or is being changed. */
  readonly adoptedTopics: readonly AdoptedTopic[]
}

/** A worker that is at rest for an adoption: nothing of it is on its way to that topic, nor will be before the adoption ends. */
export interface WorkerRest {
  readonly owner: string
  readonly adoption: string
}

/** Who owns which lane. Used by the relay's main thread, for all of its workers in one statement. */
export interface LaneDirectory {
  /**
   * Extends the life of `owners` by `leaseMs`, notes for which adoptions they
   * are at rest, all others excluded, and shows all lanes and live workers.
   */
  renew(owners: readonly string[], leaseMs: number, rests?: readonly WorkerRest[]): Promise<DirectoryView>
  /** Which of `lanes` have pending events. */
  pendingLanes(lanes: readonly number[]): Promise<readonly number[]>
  /** Takes those of `lanes` that are free or whose owner has expired. */
  claim(owner: string, lanes: readonly number[]): Promise<readonly LaneGrant[]>
  /** Forgets a worker that has ended: what it still owned can be claimed at once. */
  retire(owner: string): Promise<void>
}

/** A topic as all relays know it. */
export interface TopicRecord extends Omit<AdoptedTopic, 'topic'> {
  /** Counts that were in force before: a record of then may lie where they put it. */
  readonly earlierCounts: readonly number[]
}

/** The partition counts that all relays use alike. */
export interface TopicRegistry {
  /** What is recorded of a topic; `null` when nothing is. */
  recorded(topic: string): Promise<TopicRecord | null>
  /** Records a count unless there is one already; resolves to what stands. */
  record(topic: string, partitionCount: number): Promise<TopicRecord>
}

/** A destination that rests, for readiness. `partition` is `null` when all of the topic does. */
export interface PausedDestination {
  readonly topic: string
  readonly partition: TopicPartition['partition'] | null
  readonly kind: 'outage' | 'destination'
  readonly reason: string
}
