/**
 * One membership in a group, from joining to its end. It ends when it is told
 * to, when kafkajs gives up, or when it sees that it no longer works; the
 * subscriber then begins another.
 */
import type { Consumer } from 'kafkajs'
import type { Clock } from '../lifecycle/clock.ts'
import { countRebalance } from '../telemetry/measure.ts'
import { traceCommit } from '../telemetry/poll-span.ts'
import type { Subscription, TopicPartition } from '../transport.ts'
import { createClient, INNER_RETRY } from './client.ts'
import { understand } from './failures.ts'
import { type ClusterInside, committedOffset, withCluster } from './inside.ts'
import { mend } from './mend.ts'
import { OffsetCommitter } from './offset-committer.ts'
import type { MemberIds } from './one-member.ts'
import { PartitionEdges } from './partition-edges.ts'
import { PartitionReader, type ReaderHost } from './partition-reader.ts'
import type { Sockets } from './sockets.ts'
import type { ResolvedSubscriberOptions } from './subscriber-options.ts'

/** Milliseconds after which the cluster is looked at anew: what goes to new partitions has no effect before they are found. */
const METADATA_MAX_AGE_MS = 5_000

const REBALANCE_TIMEOUT_MS = 30_000
const WATCH_MS = 1_000

/** Every so many rounds of the watch, the ends of the partitions are read. */
const ENDS_EVERY = 10

/** A step back of the clock, in milliseconds, after which kafkajs would stop its heartbeats until the old time is reached. */
const STEP_BACK_MS = 2_000

/** Milliseconds for a membership to come to its end in good order. */
export const CLOSE_MS = 3_000

/** kafkajs's fetch rounds work on a partition at a time for each of these: enough for all. */
const PARTITIONS_AT_ONCE = 1_000

/** What a coordinator says that has just started, or just taken the group over. It passes by itself. */
const COORDINATOR_STARTS = new Set([
  'GROUP_LOAD_IN_PROGRESS',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR_FOR_GROUP',
])

/** Why a membership has ended. */
export interface MembershipEnd {
  /** A sentence for an operator. */
  readonly reason: string
  /** Whether the group's coordinator was only not ready yet, as on a broker that has just started. */
  readonly passing: boolean
}

/** What the members of one subscription share. */
export interface MembershipContext {
  readonly options: ResolvedSubscriberOptions
  readonly subscription: Subscription
  readonly clock: Clock
  readonly memberIds: MemberIds
  /** The last delivery of each partition, over all memberships: two never overlap. */
  readonly deliveries: Map<string, Promise<void>>
}

/** A member of the group. */
export class Membership {
  readonly #context: MembershipContext
  readonly #topics: readonly string[]
  readonly #consumer: Consumer
  readonly #cluster: ClusterInside
  readonly #sockets: Sockets
  readonly #committer: OffsetCommitter
  readonly #host: ReaderHost
  readonly #end = Promise.withResolvers<MembershipEnd>()
  readonly #over = new AbortController()
  readonly #edges: PartitionEdges
  #readers = new Map<string, PartitionReader>()
  /** Those whose partition went to another member: what they still finish is not committed, whoever has it by then. */
  readonly #disowned = new WeakSet<PartitionReader>()
  #joined = false
  /** Cuts the connections that do not close by themselves. */
  #closing: NodeJS.Timeout | undefined
  #aliveAt: number

  constructor(context: MembershipContext, topics: readonly string[]) {
    const { options, subscription, clock } = context
    const { kafka, sockets } = createClient(options)
    const { client, cluster } = withCluster(kafka, () =>
      kafka.consumer({
        groupId: subscription.groupId,
        allowAutoTopicCreation: false,
        sessionTimeout: options.sessionTimeoutMs,
        heartbeatInterval: Math.floor(options.sessionTimeoutMs / 4),
        rebalanceTimeout: REBALANCE_TIMEOUT_MS,
        metadataMaxAge: METADATA_MAX_AGE_MS,
        maxWaitTimeInMs: options.maxWaitMs,
        maxBytesPerPartition: options.maxPartitionBytes,
        // It restarts after some errors and not after others; we do, after all.
        retry: { ...INNER_RETRY, retries: 5, restartOnFailure: async () => false },
      }),
    )
    mend(cluster, context.memberIds.watch)
    context.memberIds.guard(cluster)
    this.#context = context
    this.#topics = topics
    this.#consumer = client
    this.#cluster = cluster
    this.#sockets = sockets
    this.#edges = new PartitionEdges(cluster, this.#over.signal)
    this.#aliveAt = clock.now()
    this.#committer = new OffsetCommitter((offsets) =>
      traceCommit(subscription.groupId, offsets, () => client.commitOffsets([...offsets])),
    )
    this.#host = this.#makeHost()
    this.#listen()
  }

  /** Resolves to why the membership has ended, if not by {@link leave}. Never rejects. */
  get ended(): Promise<MembershipEnd> {
    return this.#end.promise
  }

  get joined(): boolean {
    return this.#joined
  }

  get readers(): readonly PartitionReader[] {
    return [...this.#readers.values()]
  }

  /** Joins the group, and begins. Failures end the membership. */
  async start(): Promise<void> {
    try {
      await this.#consumer.connect()
      await this.#consumer.subscribe({ topics: [...this.#topics], fromBeginning: true })
      void this.#watch()
      await this.#consumer.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        partitionsConsumedConcurrently: PARTITIONS_AT_ONCE,
        eachBatch: async (payload) => {
          await this.#readers.get(placeOf(payload.batch))?.take(payload)
        },
      })
    } catch (error) {
      this.#finish(error)
    }
  }

  /** Lets the batches in hand end, until `enough`, commits what is finished, and leaves the group. Never rejects. */
  async leave(enough: AbortSignal): Promise<void> {
    this.#over.abort()
    for (const [place, reader] of this.#readers) {
      reader.end()
      this.#context.deliveries.set(place, reader.settled)
    }
    await untilAborted(Promise.all(this.readers.map(({ settled }) => settled)), enough)
    clearTimeout(this.#closing)
    this.#closing = setTimeout(() => this.#sockets.cutOff(), CLOSE_MS)
    await untilAborted(this.#committer.flush(), AbortSignal.timeout(CLOSE_MS))
    for (const reader of this.readers) this.#disowned.add(reader)
    this.#readers.clear()
    await this.#consumer.disconnect().catch(() => {})
    clearTimeout(this.#closing)
    this.#sockets.cutOff()
  }

  #listen(): void {
    const consumer = this.#consumer
    const { GROUP_JOIN, STOP, CRASH, FETCH_START, START_BATCH_PROCESS } = consumer.events
    consumer.on(GROUP_JOIN, ({ payload }) => {
      countRebalance(payload.groupId)
      this.#assign(payload.memberAssignment)
    })
    // A client that crashes closes its connections before it says so, and waits for every answer before that, while
    // it takes no orders.
    consumer.on(STOP, () => {
      this.#over.abort()
      clearTimeout(this.#closing)
      this.#closing = setTimeout(() => this.#sockets.cutOff(), CLOSE_MS)
    })
    consumer.on(CRASH, ({ payload }) => {
      this.#finish(payload.error)
    })
    consumer.on(FETCH_START, () => {
      this.#aliveAt = this.#context.clock.now()
    })
    consumer.on(START_BATCH_PROCESS, ({ payload }) => {
      if (payload.batchSize === 0) this.#readers.get(placeOf(payload))?.passed(BigInt(payload.lastOffset))
    })
  }

  #makeHost(): ReaderHost {
    const { subscription, clock, options } = this.#context
    const unlessOver = (work: () => void) => {
      if (!this.#over.signal.aborted) work()
    }
    return {
      subscription,
      clock,
      logger: options.logger,
      committed: async (where) => {
        await this.#committer.flush()
        return await committedOffset(this.#cluster, subscription.groupId, where)
      },
      edge: (where, edge) => this.#edges.of(where, edge),
      pause: ({ topic, partition }) => {
        unlessOver(() => this.#consumer.pause([{ topic, partitions: [partition] }]))
      },
      resume: ({ topic, partition }) => {
        unlessOver(() => this.#consumer.resume([{ topic, partitions: [partition] }]))
      },
      seek: ({ topic, partition }, offset) => {
        unlessOver(() => this.#consumer.seek({ topic, partition, offset: String(offset) }))
      },
      finished: (reader, offset) => {
        if (!this.#disowned.has(reader)) this.#committer.finished(reader.where, offset)
      },
    }
  }

  /**
   * kafkajs calls this between the assignment and the first fetch, so what is
   * paused here is not fetched before its reader knows where to begin. Every
   * partition begins anew, the kept ones too: another member may have had them.
   */
  #assign(assignment: Readonly<Record<string, readonly number[]>>): void {
    if (this.#over.signal.aborted) return
    const { deliveries, clock } = this.#context
    for (const [place, reader] of this.#readers) {
      reader.end()
      deliveries.set(place, reader.settled)
      const { topic, partition } = reader.where
      if (!assignment[topic]?.includes(partition)) this.#disowned.add(reader)
    }
    const assigned = Object.entries(assignment).flatMap(([topic, partitions]) =>
      partitions.map((partition) => ({ topic, partition })),
    )
    const known = this.#cluster.committedOffsets({ groupId: this.#context.subscription.groupId })
    for (const where of assigned) {
      this.#host.pause(where)
      // Every reader finds its own beginning. Asked by kafkajs, one leaderless partition would hold up all.
      known[where.topic] = { ...known[where.topic], [where.partition]: '0' }
    }
    this.#readers = new Map(
      assigned.map((where) => {
        const place = placeOf(where)
        return [place, new PartitionReader(where, this.#host, deliveries.get(place) ?? Promise.resolve())]
      }),
    )
    this.#committer.keepOnly((where) => this.#readers.has(placeOf(where)))
    this.#joined = true
    this.#aliveAt = clock.now()
  }

  /** kafkajs can stop, or pass a partition over, without a word. */
  async #watch(): Promise<void> {
    const { clock, options } = this.#context
    let ahead = Date.now() - clock.now()
    for (let round = 1; !this.#over.signal.aborted; round += 1) {
      await clock.pause(WATCH_MS, this.#over.signal)
      const now = Date.now() - clock.now()
      if (ahead - now > STEP_BACK_MS) this.#finish('The clock was set back')
      ahead = now
      if (clock.now() - this.#aliveAt > options.stallTimeoutMs) this.#finish('Nothing was fetched for too long')
      // One that has failed would wait for the next event, and an idle topic has none.
      void this.#committer.flush()
      if (round % ENDS_EVERY === 0) await Promise.all(this.readers.map((reader) => this.#hearEnd(reader)))
      const stalled = this.readers.find((reader) => reader.stalledMs() > options.stallTimeoutMs)
      if (stalled)
        this.#finish(`${stalled.where.topic}, partition ${stalled.where.partition} brings nothing though there is more`)
    }
  }

  async #hearEnd(reader: PartitionReader): Promise<void> {
    try {
      reader.heardEnd(await this.#edges.of(reader.where, 'end'))
    } catch {
      // A leader that is away; the next round asks again.
    }
  }

  #finish(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error)
    this.#end.resolve({ reason, passing: COORDINATOR_STARTS.has(understand(error).reason) })
  }
}

function placeOf({ topic, partition }: TopicPartition): string {
  return `${topic}/${partition}`
}

async function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const aborted = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => aborted.resolve(), { once: true })
  await Promise.race([work, aborted.promise])
}
