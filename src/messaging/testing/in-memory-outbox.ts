/**
 * An outbox in memory: events, leases and held keys under the same rules as the
 * tables, in a clock's time, so that a simulation can run the relay over it.
 *
 * Passes the contract suite that the Postgres source passes. Every call goes
 * through `around`, by which a simulation delays it, fails it, or loses its
 * answer after it took effect. One file beyond the usual length: three ports over
 * one state, whose rules are read beside each other.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type {
  DirectoryView,
  HeldKey,
  HeldLimit,
  HoldRequest,
  KeyRef,
  LaneDirectory,
  LaneGrant,
  LaneRelease,
  LaneState,
  Lease,
  Ownership,
  ReadRequest,
  RelaySource,
  Settlement,
  SkipRequest,
  TopicRecord,
  TopicRegistry,
} from '../source.ts'
import { InMemoryLanes } from './in-memory-lanes.ts'

/** What happens to a call: `apply` does it, all of it or nothing. */
export type Around = <Result>(call: string, apply: () => Result) => Promise<Result>

export interface InMemoryOutboxOptions {
  readonly clock: Clock
  /** Java's murmur2 of a key, signed. */
  readonly hash: (aggregateId: string) => number
  /** The topic of events that have none of their own. */
  readonly topicFor: (aggregateType: string) => string
  /** @defaultValue 64 */
  readonly laneCount?: number
  /** @defaultValue every call takes effect at once */
  readonly around?: Around
}

/** An event to be appended; the outbox adds what places it. */
export type AppendedEvent = Omit<OutboxEvent, 'seq' | 'lane' | 'keyHash' | 'createdAt'>

/** A settled row, and the lease that stood at that moment. */
export interface Mark extends Lease {
  readonly event: OutboxEvent
  readonly owner: string
  readonly leaseOwner: string | null
  readonly leaseToken: bigint
}

interface Row {
  readonly event: OutboxEvent
  visible: boolean
  held: boolean
  attempts: number
}

interface Key extends KeyRef {
  state: 'backoff' | 'parked'
  attempts: number
  dueAt: number
  reason: string
  request: HeldKey['request']
}

export class InMemoryOutbox implements RelaySource, LaneDirectory, TopicRegistry {
  readonly #options: Required<InMemoryOutboxOptions>
  /** Each lane's unpublished rows by `seq`, in append order. */
  readonly #rows: readonly Map<bigint, Row>[]
  readonly #lanes: InMemoryLanes
  readonly #keys = new Map<string, Key>()
  readonly #topics = new Map<string, number>()
  readonly #marks: Mark[] = []
  readonly #skipped: OutboxEvent[] = []
  #lastSeq = 0n

  constructor(options: InMemoryOutboxOptions) {
    this.#options = { laneCount: 64, around: async (_, apply) => apply(), ...options }
    this.#rows = Array.from({ length: this.#options.laneCount }, () => new Map())
    this.#lanes = new InMemoryLanes(this.#options.clock, this.#options.laneCount)
  }

  /** Appends and commits. */
  append(events: readonly AppendedEvent[]): readonly OutboxEvent[] {
    const open = this.appendOpen(events)
    open.commit()
    return open.events
  }

  /** Appends in a transaction that is still open: the events have their place and are not seen until it commits. */
  appendOpen(events: readonly AppendedEvent[]): { readonly events: readonly OutboxEvent[]; commit(): void } {
    const rows = events.map((event) => this.#insert(event))
    return {
      events: rows.map(({ event }) => event),
      commit() {
        for (const row of rows) row.visible = true
      },
    }
  }

  /** Ends a worker's lease now, as if its time had passed. */
  expire(owner: string): void {
    this.#lanes.expire(owner)
  }

  /** Asks something of a held key, as an operator would: resume and skip of a parked one, the next attempt of one in back-off. */
  request(key: KeyRef, request: NonNullable<HeldKey['request']>): void {
    const held = this.#keys.get(nameOf(key))
    if (held?.state !== (request === 'retry_now' ? 'backoff' : 'parked')) return
    held.request = request
    if (request === 'retry_now') held.dueAt = this.#options.clock.now()
  }

  /** Every settled row so far, in order, each once. */
  get marks(): readonly Mark[] {
    return this.#marks
  }

  /** Events that an operator has left out. */
  get skipped(): readonly OutboxEvent[] {
    return this.#skipped
  }

  /** Committed events that are neither published nor held. */
  get pendingCount(): number {
    return this.#rows.reduce((sum, _, lane) => sum + this.#pendingOf(lane).length, 0)
  }

  /** Keys that are held or parked, as they stand. */
  get keys(): readonly Omit<HeldKey, 'dueInMs'>[] {
    return [...this.#keys.values()]
  }

  /** Workers whose leases have not expired. */
  get liveOwners(): readonly string[] {
    return this.#lanes.liveOwners
  }

  get lanes(): readonly LaneState[] {
    return this.#lanes.states
  }

  read(ownership: Ownership, request: ReadRequest): Promise<readonly OutboxEvent[]> {
    return this.#options.around('read', () => {
      const owned = this.#lanes.heldOf(ownership)
      const inHand = new Set(request.inHand)
      return request.lanes.flatMap(({ lane, limit }) => {
        if (!owned.has(lane)) return []
        const wanted = this.#pendingOf(lane).filter(
          ({ event }) => !inHand.has(event.seq) && !isExcluded(event, request.exclusions),
        )
        return withinBytes(wanted.slice(0, limit), request.maxBytesPerLane).map(({ event }) => event)
      })
    })
  }

  settle(ownership: Ownership, events: readonly OutboxEvent[]): Promise<Settlement> {
    return this.#fenced('settle', ownership, (lanes) => {
      let changed = 0
      for (const { seq, lane } of events) {
        const row = this.#rowsIn(lane).get(seq)
        if (!row || !lanes.has(lane)) continue
        this.#rowsIn(lane).delete(seq)
        this.#note(row, ownership)
        changed += 1
      }
      return changed
    })
  }

  hold(ownership: Ownership, key: KeyRef, request: HoldRequest): Promise<Settlement> {
    return this.#fenced('hold', ownership, (lanes) => {
      if (!lanes.has(key.lane)) return 0
      const { attempts, reason, retryInMs, park } = request
      const dueAt = this.#options.clock.now() + retryInMs
      const known = this.#keys.get(nameOf(key))
      const isRepeated = park && known?.state === 'parked' && known.attempts === attempts && known.reason === reason
      this.#keys.set(nameOf(key), {
        ...key,
        state: park ? 'parked' : 'backoff',
        attempts,
        dueAt,
        reason,
        request: isRepeated ? known.request : null,
      })
      return this.#setAside(key)
    })
  }

  holdFollowers(ownership: Ownership, key: KeyRef): Promise<Settlement> {
    return this.#fenced('holdFollowers', ownership, (lanes) =>
      lanes.has(key.lane) && this.#keys.has(nameOf(key)) ? this.#setAside(key) : 0,
    )
  }

  heldKeys(lanes: readonly number[]): Promise<readonly HeldKey[]> {
    return this.#options.around('heldKeys', () =>
      [...this.#keys.values()]
        .filter(({ lane }) => lanes.includes(lane))
        .map(({ dueAt, ...key }) => ({ ...key, dueInMs: Math.max(0, dueAt - this.#options.clock.now()) })),
    )
  }

  readHeld(key: KeyRef, { count, bytes }: HeldLimit): Promise<readonly OutboxEvent[]> {
    return this.#options.around('readHeld', () => {
      const held = this.#rowsOf(key).filter((row) => row.held)
      return withinBytes(held.slice(0, count), bytes).map(({ event }) => event)
    })
  }

  skip(ownership: Ownership, key: KeyRef, { eventId, published, longestWaitMs }: SkipRequest): Promise<Settlement> {
    return this.#fenced('skip', ownership, (lanes) => {
      const held = this.#keys.get(nameOf(key))
      const first = this.#rowsOf(key).find((row) => row.held)
      const now = this.#options.clock.now()
      if (!held || !lanes.has(key.lane) || held.state !== 'parked' || held.request !== 'skip') return 0
      if (held.dueAt > now && held.dueAt <= now + longestWaitMs) return 0
      if (first?.event.id !== eventId) return 0
      Object.assign(held, { state: 'backoff', attempts: 0, dueAt: now, request: null })
      this.#rowsIn(key.lane).delete(first.event.seq)
      if (published) this.#note(first, ownership)
      else this.#skipped.push(first.event)
      return 1
    })
  }

  goOn(ownership: Ownership, key: KeyRef, asked: 'resume' | 'skip'): Promise<Settlement> {
    return this.#fenced('goOn', ownership, (lanes) => {
      const held = this.#keys.get(nameOf(key))
      if (!held || !lanes.has(key.lane) || held.state !== 'parked' || held.request !== asked) return 0
      Object.assign(held, { state: 'backoff', attempts: 0, dueAt: this.#options.clock.now(), request: null })
      return 1
    })
  }

  async releaseKey(ownership: Ownership, key: KeyRef): Promise<boolean> {
    const { changed } = await this.#fenced('releaseKey', ownership, (lanes) => {
      if (!lanes.has(key.lane) || this.#rowsOf(key).some(({ held }) => held)) return 0
      return this.#keys.delete(nameOf(key)) ? 1 : 0
    })
    return changed === 1
  }

  async recordAttempt(ownership: Ownership, event: OutboxEvent): Promise<number> {
    const { changed } = await this.#fenced('recordAttempt', ownership, (lanes) => {
      const row = this.#rowsIn(event.lane).get(event.seq)
      if (!row || !lanes.has(event.lane)) return 0
      row.attempts += 1
      return row.attempts
    })
    return changed
  }

  clearAttempts(ownership: Ownership, event: OutboxEvent): Promise<Settlement> {
    return this.#fenced('clearAttempts', ownership, (lanes) => {
      const row = this.#rowsIn(event.lane).get(event.seq)
      if (!row || !lanes.has(event.lane) || row.attempts === 0) return 0
      row.attempts = 0
      return 1
    })
  }

  clearCrashes(ownership: Ownership): Promise<Settlement> {
    return this.#fenced('clearCrashes', ownership, (lanes) => {
      for (const lane of lanes) this.#lanes.clearCrashes(lane)
      return lanes.size
    })
  }

  release(owner: string, leases: readonly LaneRelease[]): Promise<Settlement> {
    return this.#fenced('release', { owner, leases }, (lanes) => {
      for (const { lane, doubt } of leases) if (lanes.has(lane)) this.#lanes.release(lane, doubt)
      return lanes.size
    })
  }

  /** Nobody adopts another partition count here, so no worker ever rests. */
  renew(owners: readonly string[], leaseMs: number): Promise<DirectoryView> {
    return this.#options.around('renew', () => {
      for (const owner of owners) this.#lanes.renew(owner, leaseMs)
      const requested = [...this.#keys.values()].filter(({ request }) => request !== null).map(({ lane }) => lane)
      const requestedLanes = [...new Set(requested)]
      return { lanes: this.lanes, liveOwners: this.#lanes.liveOwners, requestedLanes, adoptedTopics: [] }
    })
  }

  pendingLanes(lanes: readonly number[]): Promise<readonly number[]> {
    return this.#options.around('pendingLanes', () => lanes.filter((lane) => this.#pendingOf(lane).length > 0))
  }

  claim(owner: string, lanes: readonly number[]): Promise<readonly LaneGrant[]> {
    return this.#options.around('claim', () =>
      lanes.flatMap((lane) => {
        const got = this.#lanes.claim(owner, lane, this.#lastSeq)
        if (got === null) return []
        const { token, crashes, doubt } = got
        return [{ lane, token, crashes, doubt, horizon: this.#lastSeq }]
      }),
    )
  }

  retire(owner: string): Promise<void> {
    return this.#options.around('retire', () => {
      this.#lanes.forget(owner)
    })
  }

  recorded(topic: string): Promise<TopicRecord | null> {
    return this.#options.around('recorded', () => {
      const count = this.#topics.get(topic)
      return count === undefined ? null : recordOf(count)
    })
  }

  record(topic: string, partitionCount: number): Promise<TopicRecord> {
    return this.#options.around('record', () => {
      const count = this.#topics.get(topic) ?? partitionCount
      this.#topics.set(topic, count)
      return recordOf(count)
    })
  }

  #insert(event: AppendedEvent): Row {
    const keyHash = this.#options.hash(event.aggregate.id)
    const lane = (keyHash & 0x7fffffff) % this.#options.laneCount
    this.#lastSeq += 1n
    const placed = { ...event, seq: this.#lastSeq, lane, keyHash, createdAt: new Date(this.#options.clock.now()) }
    const row = { event: placed, visible: false, held: false, attempts: 0 }
    this.#rowsIn(lane).set(placed.seq, row)
    return row
  }

  /** Runs `change` for the lanes whose lease `ownership` still holds. */
  #fenced(call: string, ownership: Ownership, change: (lanes: ReadonlySet<number>) => number): Promise<Settlement> {
    return this.#options.around(call, () => {
      const lanes = this.#lanes.heldOf(ownership)
      const fencedLanes = ownership.leases.map(({ lane }) => lane).filter((lane) => !lanes.has(lane))
      return { changed: change(lanes), fencedLanes }
    })
  }

  #note({ event }: Row, { owner, leases }: Ownership): void {
    const { owner: leaseOwner, token: leaseToken } = this.#lanes.state(event.lane)
    const token = leases.find(({ lane }) => lane === event.lane)?.token ?? -1n
    this.#marks.push({ event, lane: event.lane, owner, token, leaseOwner, leaseToken })
  }

  #setAside(key: KeyRef): number {
    const rows = this.#rowsOf(key).filter(isPending)
    for (const row of rows) row.held = true
    return rows.length
  }

  #rowsOf({ lane, topic, aggregateType, aggregateId }: KeyRef): Row[] {
    return [...this.#rowsIn(lane).values()].filter(
      ({ event, visible }) =>
        visible &&
        event.aggregate.type === aggregateType &&
        event.aggregate.id === aggregateId &&
        (event.topic ?? this.#options.topicFor(aggregateType)) === topic,
    )
  }

  #pendingOf(lane: number): Row[] {
    return [...this.#rowsIn(lane).values()].filter(isPending)
  }

  #rowsIn(lane: number): Map<bigint, Row> {
    const rows = this.#rows[lane]
    if (!rows) throw new RangeError(`There is no lane ${lane}`)
    return rows
  }
}

function recordOf(partitionCount: number): TopicRecord {
  return { partitionCount, earlierCounts: [], adoption: null }
}

function isPending({ visible, held }: Row): boolean {
  return visible && !held
}

function isExcluded(event: OutboxEvent, exclusions: ReadRequest['exclusions']): boolean {
  return exclusions.some(({ topic, aggregateTypes, partition }) => {
    const concerned = event.topic === null ? aggregateTypes.includes(event.aggregate.type) : event.topic === topic
    if (!concerned || partition === null) return concerned
    return (event.keyHash & 0x7fffffff) % partition.count === partition.number
  })
}

/** Ends once `maxBytes` are reached; the first row is there however large it is. */
function withinBytes(rows: readonly Row[], maxBytes: number): readonly Row[] {
  let before = 0
  const end = rows.findIndex(({ event }, index) => {
    if (index > 0 && before >= maxBytes) return true
    before += event.payload === null ? 0 : Buffer.byteLength(event.payload)
    return false
  })
  return end === -1 ? rows : rows.slice(0, end)
}

function nameOf({ topic, aggregateType, aggregateId }: KeyRef): string {
  return JSON.stringify([topic, aggregateType, aggregateId])
}
