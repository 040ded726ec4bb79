/**
 * What one worker knows of the topics it writes to: how many partitions each
 * has, which of them rest after a failure, and until when.
 *
 * A topic that is not known yet rests while it is looked up, and its events are
 * read again afterwards. So no destination ever makes another one wait.
 */
import type { OutboxEvent } from '../envelope.ts'
import { PublishError } from '../errors.ts'
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { partitionOf } from '../outbox/lane.ts'
import type { TopicRule } from '../outbox/topic-rule.ts'
import type { Exclusion, PausedDestination, TopicRegistry } from '../source.ts'
import { measureTopic } from '../telemetry/measure.ts'
import type { Publisher, TopicDescription, TopicPartition, TopicSpec } from '../transport.ts'

const outageBackoff: Backoff = { firstMs: 100, maxMs: 5_000 }
const destinationBackoff: Backoff = { firstMs: 1_000, maxMs: 30_000 }

/** What Kafka takes for a topic's name. */
const TOPIC_NAME = /^[A-Za-z0-9._-]{1,249}$/

/** Milliseconds after which a look-up is told of. */
const LONG_LOOKUP_MS = 2_000

/**
 * Milliseconds after its end for which a pause is still told of: until then it
 * is tried again, or there was nothing more to try, and nobody knows of a fault.
 */
const TELL_AFTER_MS = 10_000

/** How often a topic's partition count is compared with the broker's. */
const RECHECK_MS = 60_000

interface Topic {
  readonly aggregateTypes: Set<string>
  partitionCount: number | null
  checkedAt: number
  /** When the look-up under way began; `null` when none is. */
  checkingSince: number | null
  warning: string | null
}

interface Pause {
  readonly kind: 'outage' | 'destination'
  readonly reason: string
  /** Failures in a row. */
  readonly attempts: number
  readonly until: number
}

export interface DestinationsOptions {
  readonly publisher: Publisher
  readonly registry: TopicRegistry
  readonly topicFor: TopicRule
  /** How topics are made that do not exist; `null` where they must not be. */
  readonly createTopics: TopicSpec | null
  readonly clock: Clock
  readonly logger: Logger
  /** Called when something that rested may be read again. */
  readonly onChange: () => void
}

export class Destinations {
  readonly #options: DestinationsOptions
  readonly #topics = new Map<string, Topic>()
  readonly #pauses = new Map<string, Pause & { readonly topic: string; readonly partition: number | null }>()
  readonly #lookups = new Set<Promise<void>>()

  constructor(options: DestinationsOptions) {
    this.#options = options
  }

  /**
   * Where `event` goes; `null` while its topic is being looked up or rests.
   *
   * `now` is the same for all events of a read: were a pause to end between two
   * of them, the second could go out before the first.
   */
  place(event: OutboxEvent, now: number): TopicPartition | null {
    const name = this.topicOf(event)
    const topic = this.#topicNamed(name)
    // An event with a topic of its own says nothing about where the rest of its type goes.
    if (event.topic === null) topic.aggregateTypes.add(event.aggregate.type)
    if (topic.partitionCount === null) {
      this.#look(name, topic)
      return null
    }
    if (now - topic.checkedAt > RECHECK_MS) this.#look(name, topic)
    const partition = partitionOf(event.keyHash, topic.partitionCount)
    return this.#rests(name, null, now) || this.#rests(name, partition, now) ? null : { topic: name, partition }
  }

  /** The topic of a key, by the rule or by the event's own override. A rule that fails names one that cannot be: it rests, alone and by name. */
  topicOf(event: OutboxEvent): string {
    if (event.topic !== null) return event.topic
    const { type } = event.aggregate
    try {
      const topic: unknown = this.#options.topicFor(type)
      if (typeof topic === 'string') return topic
    } catch {
      // Told by the look-up, like a rule that names nothing.
    }
    return `(the topic rule names none for ${type})`
  }

  /** Notes a failed publish that says something about the destination, and lets it rest for longer each time. */
  failed(error: PublishError): void {
    const isDestination = error.kind === 'destination'
    this.#pause(
      error.topic,
      isDestination ? null : error.partition,
      isDestination ? 'destination' : 'outage',
      error.reason,
    )
    // The topic is looked up again before anything more is sent to it.
    if (isDestination) this.#topicNamed(error.topic).partitionCount = null
  }

  /** Notes a success: the destination's pauses start small again. */
  succeeded({ topic, partition }: TopicPartition): void {
    if (this.#pauses.size === 0) return
    this.#pauses.delete(keyOf(topic, partition))
    this.#pauses.delete(keyOf(topic, null))
  }

  /** What a read at `now` should leave out: all that rests, topics that are being looked up, and what is `busy` besides. */
  exclusions(now: number, busy: readonly TopicPartition[]): readonly Exclusion[] {
    const resting = [...this.#pauses.values()].filter(({ until }) => until > now)
    const unknown = [...this.#topics].flatMap(([topic, { partitionCount, checkingSince }]) =>
      partitionCount === null && checkingSince !== null ? [{ topic, partition: null }] : [],
    )
    return [...resting, ...unknown, ...busy].map((pause) => this.#toExclusion(pause))
  }

  /** Milliseconds until the next pause ends; `null` when nothing rests. */
  nextChangeInMs(): number | null {
    const now = this.#options.clock.now()
    const waits = [...this.#pauses.values()].map(({ until }) => until - now).filter((wait) => wait > 0)
    return waits.length === 0 ? null : Math.min(...waits)
  }

  /** What rests or is being tried again, and topics that take long to look up, for readiness. */
  paused(): readonly PausedDestination[] {
    const now = this.#options.clock.now()
    const before = now - LONG_LOOKUP_MS
    const unknown = [...this.#topics].flatMap(([topic, { partitionCount, checkingSince }]) =>
      partitionCount === null && checkingSince !== null && checkingSince <= before
        ? [
            {
              topic,
              partition: null,
              kind: 'outage' as const,
              reason: 'the broker does not say how many partitions it has',
            },
          ]
        : [],
    )
    const resting = [...this.#pauses.values()].filter(({ until }) => until + TELL_AFTER_MS > now)
    return [...unknown, ...resting.map(({ topic, partition, kind, reason }) => ({ topic, partition, kind, reason }))]
  }

  /** What an operator should know of topics that work all the same. */
  warnings(): readonly string[] {
    return [...this.#topics.values()].flatMap(({ warning }) => (warning === null ? [] : [warning]))
  }

  /** Resolves once no look-up is running. */
  async settled(): Promise<void> {
    await Promise.all(this.#lookups)
  }

  #topicNamed(name: string): Topic {
    const known = this.#topics.get(name)
    if (known !== undefined) return known
    const topic: Topic = {
      aggregateTypes: new Set(),
      partitionCount: null,
      checkedAt: 0,
      checkingSince: null,
      warning: null,
    }
    this.#topics.set(name, topic)
    return topic
  }

  #rests(topic: string, partition: number | null, now: number): boolean {
    const pause = this.#pauses.get(keyOf(topic, partition))
    return pause !== undefined && pause.until > now
  }

  #pause(topic: string, partition: number | null, kind: Pause['kind'], reason: string): void {
    const { clock, logger } = this.#options
    const key = keyOf(topic, partition)
    const attempts = (this.#pauses.get(key)?.attempts ?? 0) + 1
    const pauseMs = backoffMs(kind === 'outage' ? outageBackoff : destinationBackoff, attempts, clock.random())
    if (attempts === 1) logger.warn({ topic, partition, kind, reason }, 'Destination paused')
    this.#pauses.set(key, { topic, partition, kind, reason, attempts, until: clock.now() + pauseMs })
  }

  #toExclusion({ topic, partition }: { topic: string; partition: number | null }): Exclusion {
    const { aggregateTypes, partitionCount } = this.#topicNamed(topic)
    return {
      topic,
      aggregateTypes: [...aggregateTypes],
      partition: partition === null || partitionCount === null ? null : { number: partition, count: partitionCount },
    }
  }

  #look(name: string, topic: Topic): void {
    if (topic.checkingSince !== null || this.#rests(name, null, this.#options.clock.now())) return
    topic.checkingSince = this.#options.clock.now()
    const lookup = this.#lookUp(name, topic).finally(() => {
      topic.checkingSince = null
      this.#lookups.delete(lookup)
      this.#options.onChange()
    })
    this.#lookups.add(lookup)
  }

  async #lookUp(name: string, topic: Topic): Promise<void> {
    const { clock, logger, registry } = this.#options
    try {
      const recorded = await registry.recorded(name)
      const found = await this.#describeOrCreate(name, recorded)
      const count = recorded ?? (await registry.record(name, found.partitionCount))
      if (found.partitionCount < count) {
        const reason = `it has ${found.partitionCount} partitions and ${count} are recorded`
        throw new PublishError({ topic: name }, { kind: 'destination', outcome: 'refused', reason })
      }
      topic.warning =
        found.partitionCount > count
          ? `Topic ${name} has ${found.partitionCount} partitions; the relay uses ${count} of them, so that no key moves`
          : null
      topic.partitionCount = count
      measureTopic({ ...found, name, usedPartitionCount: count })
      topic.checkedAt = clock.now()
      this.#pauses.delete(keyOf(name, null))
      logger.debug({ topic: name, partitions: count }, 'Topic known')
    } catch (error) {
      // A re-check that fails changes nothing: sends will tell.
      if (topic.partitionCount !== null && !(error instanceof PublishError && error.kind === 'destination')) return
      topic.partitionCount = null
      const known = error instanceof PublishError
      const reason = known ? error.reason : 'the database could not be asked for its partition count'
      this.#pause(name, null, known && error.kind === 'destination' ? 'destination' : 'outage', reason)
    }
  }

  async #describeOrCreate(name: string, recorded: number | null): Promise<TopicDescription> {
    const { publisher, createTopics } = this.#options
    if (!TOPIC_NAME.test(name)) {
      const reason = 'its name is none that Kafka takes'
      throw new PublishError({ topic: name }, { kind: 'destination', outcome: 'refused', reason })
    }
    const found = await publisher.describeTopic(name)
    if (found !== null) return found
    if (createTopics === null) {
      throw new PublishError({ topic: name }, { kind: 'destination', outcome: 'refused', reason: 'it does not exist' })
    }
    return await publisher.createTopic(name, {
      ...createTopics,
      partitionCount: recorded ?? createTopics.partitionCount,
    })
  }
}

function keyOf(topic: string, partition: number | null): string {
  return `${topic}/${partition ?? '*'}`
}
