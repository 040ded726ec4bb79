/**
 * A broker in memory, for tests: the same ports, the same rules, no server.
 * It passes the same contract as the Kafka driver, knows repeats as Kafka
 * does, and can be made to fail on purpose. With a clock of the test's own it
 * runs in virtual time, and alike each time.
 */
import { PublishError } from '../errors.ts'
import { type Clock, systemClock } from '../lifecycle/clock.ts'
import type {
  ActiveSubscription,
  EventSearch,
  Publisher,
  PublishReceipt,
  RecordBatch,
  Subscriber,
  Subscription,
  TopicDescription,
  TopicPartition,
  TopicSpec,
} from '../transport.ts'
import { Faults } from './faults.ts'
import { InMemoryGroup } from './in-memory-group.ts'
import { createInMemoryPublisher, type InMemoryPublisherOptions, type PublisherHost } from './in-memory-publisher.ts'
import { type Appended, type Numbering, PartitionLog, type StoredRecord } from './partition-log.ts'

/** How an in-memory broker behaves. */
export interface InMemoryBrokerOptions {
  /** Time for pauses and delays. @defaultValue the real one */
  readonly clock?: Clock
  /** The time of day, for record timestamps. @defaultValue the real one */
  readonly now?: () => Date
  /** Topics that exist from the start, with their partition counts. @defaultValue none */
  readonly topics?: Readonly<Record<string, number>>
  /** Bytes of a batch above which it is refused. @defaultValue 1_048_576 */
  readonly maxBatchBytes?: number
}

/** The broker, and a first publisher and subscriber to it. */
export class InMemoryBroker implements Publisher, Subscriber {
  /** What goes wrong on purpose. */
  readonly faults = new Faults()
  readonly #clock: Clock
  readonly #now: () => Date
  readonly #maxBatchBytes: number
  readonly #topics = new Map<string, PartitionLog[]>()
  readonly #groups = new Map<string, InMemoryGroup>()
  readonly #arrived: StoredRecord[] = []
  readonly #waiting = new Set<() => void>()
  readonly #publisher: Publisher
  #producerIds = 0
  #received = 0

  constructor({
    clock = systemClock,
    now = () => new Date(),
    topics = {},
    maxBatchBytes = 1_048_576,
  }: InMemoryBrokerOptions = {}) {
    this.#clock = clock
    this.#now = now
    this.#maxBatchBytes = maxBatchBytes
    for (const [topic, count] of Object.entries(topics)) this.#topics.set(topic, makeLogs(topic, count))
    this.#publisher = this.createPublisher()
  }

  /** Another publisher, as another thread or process has one. */
  createPublisher(options: InMemoryPublisherOptions = {}): Publisher {
    const host: PublisherHost = {
      clock: this.#clock,
      faults: this.faults,
      maxBatchBytes: this.#maxBatchBytes,
      nextProducerId: () => {
        this.#producerIds += 1
        return this.#producerIds
      },
      append: (batch, numbering) => this.#append(batch, numbering),
      describe: (topic) => this.#describe(topic),
      records: ({ topic, partition }) =>
        this.#topics.get(topic)?.[partition] === undefined ? null : this.records(topic, partition),
      create: (topic, spec) => this.#create(topic, spec),
      answers: () => !this.faults.everythingIsAway,
    }
    return createInMemoryPublisher(host, options)
  }

  /** A subscriber, as another process has one. */
  createSubscriber(): Subscriber {
    return { subscribe: (subscription) => this.subscribe(subscription) }
  }

  publish(batch: RecordBatch, options: { readonly signal: AbortSignal }): Promise<PublishReceipt> {
    return this.#publisher.publish(batch, options)
  }

  get deliveryTimeoutMs(): number {
    return this.#publisher.deliveryTimeoutMs
  }

  findEvent(search: EventSearch, options: { readonly signal: AbortSignal }): Promise<bigint | null> {
    return this.#publisher.findEvent(search, options)
  }

  describeTopic(topic: string): Promise<TopicDescription | null> {
    return this.#publisher.describeTopic(topic)
  }

  createTopic(topic: string, spec: TopicSpec): Promise<TopicDescription> {
    return this.#publisher.createTopic(topic, spec)
  }

  ping(): Promise<void> {
    return this.#publisher.ping()
  }

  close(): Promise<void> {
    return this.#publisher.close()
  }

  subscribe(subscription: Subscription): ActiveSubscription {
    return this.#group(subscription.groupId).join(subscription)
  }

  /**
   * Resolves to the next `count` records in order of arrival, over all topics;
   * each is handed out once. Waits until there are as many.
   */
  async receive(count: number): Promise<readonly StoredRecord[]> {
    const from = this.#received
    this.#received += count
    while (this.#arrived.length < from + count) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#waiting.add(resolve)
      await promise
      this.#waiting.delete(resolve)
    }
    return this.#arrived.slice(from, from + count)
  }

  /** All records that a topic still has, partition by partition in offset order; of one partition, where given. */
  records(topic: string, partition?: number): readonly StoredRecord[] {
    const logs = this.#topics.get(topic) ?? []
    return logs.flatMap((log, at) =>
      partition === undefined || partition === at ? log.read(log.startOffset, Number.MAX_SAFE_INTEGER) : [],
    )
  }

  /** What a group has committed; `null` if nothing. */
  committed(groupId: string, where: TopicPartition): bigint | null {
    return this.#groups.get(groupId)?.committed(where) ?? null
  }

  /** Deals a group's partitions out anew, as after a member's silence. */
  async rebalance(groupId: string): Promise<void> {
    await this.#group(groupId).rebalance()
  }

  /** Removes a topic and all that is in it. */
  async deleteTopic(topic: string): Promise<void> {
    this.#topics.delete(topic)
    await this.#tellGroups()
  }

  /** Deletes a partition's records below `offset`, as retention does. */
  deleteRecords({ topic, partition }: TopicPartition, offset: bigint): void {
    this.#topics.get(topic)?.[partition]?.deleteBefore(offset)
  }

  /** Adds partitions to a topic, empty ones. */
  async addPartitions(topic: string, count: number): Promise<void> {
    const logs = this.#topics.get(topic) ?? []
    this.#topics.set(topic, [...logs, ...makeLogs(topic, count).slice(logs.length)])
    await this.#tellGroups()
  }

  #append(batch: RecordBatch, numbering: Numbering): Appended | null {
    const log = this.#topics.get(batch.topic)?.[batch.partition]
    if (log === undefined) return null
    const appended = log.append(batch.records, numbering, this.#now())
    if (appended.kind === 'stored') {
      this.#arrived.push(...appended.records)
      for (const wake of this.#waiting) wake()
    }
    return appended
  }

  #describe(topic: string): TopicDescription | null {
    const logs = this.#topics.get(topic)
    return logs === undefined ? null : { partitionCount: logs.length, replicationFactor: 1, minInsyncReplicas: 1 }
  }

  #create(topic: string, { partitionCount }: TopicSpec): TopicDescription {
    if (!this.#topics.has(topic)) {
      if (!/^[\w.-]{1,249}$/.test(topic)) {
        throw new PublishError(
          { topic },
          { kind: 'destination', outcome: 'refused', reason: 'INVALID_TOPIC_EXCEPTION' },
        )
      }
      this.#topics.set(topic, makeLogs(topic, partitionCount))
      void this.#tellGroups()
    }
    return { partitionCount: this.#topics.get(topic)?.length ?? 0, replicationFactor: 1, minInsyncReplicas: 1 }
  }

  async #tellGroups(): Promise<void> {
    await Promise.all([...this.#groups.values()].map((group) => group.rebalance()))
  }

  #group(groupId: string): InMemoryGroup {
    let group = this.#groups.get(groupId)
    if (group === undefined) {
      group = new InMemoryGroup({ clock: this.#clock, partitions: (topic) => this.#topics.get(topic) ?? null })
      this.#groups.set(groupId, group)
    }
    return group
  }
}

function makeLogs(topic: string, count: number): PartitionLog[] {
  return Array.from({ length: count }, (_, partition) => new PartitionLog(topic, partition))
}
