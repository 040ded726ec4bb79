/**
 * A consumer group in memory: members share the partitions of their topics, and
 * each coming or going deals them out anew. Offsets are committed after
 * `deliver`, up to what it says, as a real driver does.
 */
import type { Clock } from '../lifecycle/clock.ts'
import { run } from '../lifecycle/running.ts'
import { errorType } from '../telemetry/attributes.ts'
import type { ActiveSubscription, BatchOutcome, IncomingRecord, Subscription, TopicPartition } from '../transport.ts'
import type { PartitionLog, StoredRecord } from './partition-log.ts'

/** Records in one batch, at most. */
const BATCH_SIZE = 500

/** Milliseconds before a batch is delivered again after `deliver` has rejected. */
const REJECTED_PAUSE_MS = 1_000

/** Milliseconds between two tries to begin, where the start offset cannot be told. */
const START_PAUSE_MS = 200

/** What a group needs of the broker. */
export interface GroupHost {
  readonly clock: Clock
  /** The partitions of a topic; `null` where it does not exist. */
  partitions(topic: string): readonly PartitionLog[] | null
}

interface Position extends TopicPartition {
  nextOffset: bigint
  /** Why it cannot begin or be delivered, as a sentence; `null` if nothing is wrong. */
  problem: string | null
  readonly log: PartitionLog
}

interface Member {
  readonly subscription: Subscription
  positions: Position[]
  missing: readonly string[]
  joined: boolean
  ended: boolean
}

/** The members of one group and what they have committed. */
export class InMemoryGroup {
  readonly #host: GroupHost
  readonly #members: Member[] = []
  readonly #committed = new Map<string, bigint>()
  #generation = new AbortController()
  #work: Promise<unknown>[] = []
  #rebalancing: Promise<void> = Promise.resolve()

  constructor(host: GroupHost) {
    this.#host = host
  }

  /** What the group has committed for a partition; `null` if nothing. */
  committed({ topic, partition }: TopicPartition): bigint | null {
    return this.#committed.get(`${topic}/${partition}`) ?? null
  }

  /** Adds a member for `subscription`. */
  join(subscription: Subscription): ActiveSubscription {
    const member: Member = { subscription, positions: [], missing: [], joined: false, ended: false }
    const running = run(
      async ({ draining }) => {
        this.#members.push(member)
        await this.rebalance()
        await new Promise<void>((resolve) => {
          draining.addEventListener('abort', () => resolve(), { once: true })
          if (draining.aborted) resolve()
        })
        this.#members.splice(this.#members.indexOf(member), 1)
        member.ended = true
        await this.rebalance()
      },
      { graceMs: 10_000 },
    )
    return { ...running, status: () => describe(member) }
  }

  /** Takes every partition from its member, once its batch in hand has ended, and deals them out anew. */
  async rebalance(): Promise<void> {
    this.#generation.abort()
    this.#rebalancing = this.#rebalancing.then(async () => {
      this.#generation.abort()
      await Promise.all(this.#work)
      this.#generation = new AbortController()
      this.#deal(this.#generation.signal)
    })
    await this.#rebalancing
  }

  #deal(signal: AbortSignal): void {
    this.#work = []
    for (const member of this.#members) {
      member.positions = []
      member.missing = []
      member.joined = true
    }
    const topics = [...new Set(this.#members.flatMap(({ subscription }) => subscription.topics))].sort()
    for (const topic of topics) {
      const members = this.#members.filter(({ subscription }) => subscription.topics.includes(topic))
      const logs = this.#host.partitions(topic)
      if (logs === null) for (const member of members) member.missing = [...member.missing, topic]
      for (const [partition, log] of (logs ?? []).entries()) {
        const member = members[partition % members.length]
        if (member === undefined) continue
        const position: Position = { topic, partition, nextOffset: 0n, problem: null, log }
        member.positions.push(position)
        this.#work.push(this.#read(member, position, signal))
      }
    }
  }

  async #read(member: Member, position: Position, signal: AbortSignal): Promise<void> {
    const { clock } = this.#host
    if (!(await this.#begin(member, position, signal))) return
    while (!signal.aborted) {
      await position.log.reaches(position.nextOffset, signal)
      const records = position.log.read(position.nextOffset, BATCH_SIZE).map(toIncoming)
      if (signal.aborted || records.length === 0) continue
      const { nextOffset, pauseMs } = await outcomeOf(member.subscription, position, records, signal)
      if (nextOffset > position.nextOffset) this.#committed.set(`${position.topic}/${position.partition}`, nextOffset)
      position.nextOffset = nextOffset
      if (pauseMs > 0) await clock.pause(pauseMs, signal)
    }
  }

  /** Resolves to whether it could. */
  async #begin(member: Member, position: Position, signal: AbortSignal): Promise<boolean> {
    const { log, topic, partition } = position
    while (!signal.aborted) {
      try {
        const asked = await member.subscription.startOffset({ topic, partition }, log.endOffset)
        const committed = this.committed(position)
        const wanted = asked === 'earliest' || committed === null ? log.startOffset : lowerOf(asked, committed)
        position.nextOffset = wanted < log.startOffset || wanted > log.endOffset ? log.startOffset : wanted
        position.problem = null
        return true
      } catch (error) {
        position.problem = `${topic}, partition ${partition} cannot begin: ${error instanceof Error ? error.message : error}`
        await this.#host.clock.pause(START_PAUSE_MS, signal)
      }
    }
    return false
  }
}

async function outcomeOf(
  { deliver }: Subscription,
  position: Position,
  records: readonly IncomingRecord[],
  signal: AbortSignal,
): Promise<BatchOutcome> {
  const { topic, partition, log, nextOffset } = position
  const first = records[0]?.offset ?? nextOffset
  const beyond = (records.at(-1)?.offset ?? first) + 1n
  try {
    const outcome = await deliver({
      topic,
      partition,
      records,
      endOffset: log.endOffset,
      heartbeat: async () => {},
      signal,
    })
    if (outcome.nextOffset < first || outcome.nextOffset > beyond) throw new RangeError('The next offset is elsewhere')
    position.problem = null
    return outcome
  } catch (error) {
    // As the port says: again, after a pause.
    position.problem = `${topic}, partition ${partition} cannot be delivered: ${errorType(error)}`
    return { nextOffset: first, pauseMs: REJECTED_PAUSE_MS }
  }
}

function toIncoming({ offset, timestamp, key, value, headers }: StoredRecord): IncomingRecord {
  return { offset, timestamp, key: Buffer.from(key), value, headers }
}

function describe({ positions, missing, joined, ended }: Member): ReturnType<ActiveSubscription['status']> {
  if (ended) return { phase: 'ended', reason: null, partitions: [] }
  const partitions = positions.map(({ topic, partition, nextOffset, log }) => ({
    topic,
    partition,
    nextOffset,
    endOffset: log.endOffset,
  }))
  const problem = positions.find((position) => position.problem !== null)?.problem ?? null
  const reason = missing.length > 0 ? `Topic ${missing.join(', ')} does not exist` : problem
  if (reason !== null) return { phase: 'failing', reason, partitions }
  return { phase: joined ? 'running' : 'joining', reason: null, partitions }
}

function lowerOf(one: bigint, other: bigint): bigint {
  if (one < other) return one
  return other
}
