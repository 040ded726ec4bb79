/**
 * What one worker knows of the topics it writes to: how many partitions each
 * has, which of them rest after a failure, and until when.
 *
 * A topic that is not known yet rests while it is looked up, and its events are
 * read again afterwards. So no destination ever makes another one wait.
 */
import { isDeepStrictEqual } from 'node:util'
import type { OutboxEvent } from '../envelope.ts'
import { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { partitionOf } from '../outbox/lane.ts'
import { answeringTopicRule, type TopicRule } from '../outbox/topic-rule.ts'
import type { AdoptedTopic, Exclusion, PausedDestination, TopicRegistry } from '../source.ts'
import { measureTopic } from '../telemetry/measure.ts'
import type { Publisher, TopicDescription, TopicPartition, TopicSpec } from '../transport.ts'
import { Pauses } from './pauses.ts'

/** What Kafka takes for a topic's name. */
const TOPIC_NAME = /^[A-Za-z0-9._-]{1,249}$/

/** Milliseconds after which a look-up is told of. */
const LONG_LOOKUP_MS = 2_000

/** Milliseconds between two looks whether an adoption has ended of which the relay has not told yet. */
const ADOPTION_LOOK_MS = 1_000

/** How often a topic's partition count is compared with the broker's. */
const RECHECK_MS = 60_000

interface Topic {
  readonly aggregateTypes: Set<string>
  partitionCount: number | null
  /** Counts of before: what was sent under them may lie elsewhere. */
  earlierCounts: readonly number[]
  /** What the relay has told last of an adoption of another count, under which the topic rests; `null` when nothing. */
  told: AdoptedTopic | null
  checkedAt: number
  /** When the look-up under way began; `null` when none is. */
  checkingSince: number | null
  warning: string | null
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

/** The adoption for which a topic rests; `null` when for none. */
function restsFor({ told }: Topic): string | null {
  return told?.adoption ?? null
}

export class Destinations {
  readonly #options: DestinationsOptions
  readonly #topicFor: TopicRule
  readonly #topics = new Map<string, Topic>()
  readonly #pauses: Pauses
  readonly #lookups = new Set<Promise<void>>()

  constructor(options: DestinationsOptions) {
    this.#options = options
    this.#topicFor = answeringTopicRule(options.topicFor)
    this.#pauses = new Pauses(options)
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
    if (restsFor(topic) !== null) return null
    if (topic.partitionCount === null) {
      this.#look(name, topic)
      return null
    }
    if (now - topic.checkedAt > RECHECK_MS) this.#look(name, topic)
    const partition = partitionOf(event.keyHash, topic.partitionCount)
    const where = { topic: name, partition }
    return this.#pauses.has({ ...where, partition: null }, now) || this.#pauses.has(where, now) ? null : where
  }

  /** Where `event` may lie if it was sent before: by the count in force, which `where` follows, and by those of before. */
  placesOf(event: OutboxEvent, where: TopicPartition): readonly TopicPartition[] {
    const counts = this.#topicNamed(where.topic).earlierCounts
    const partitions = new Set([where.partition, ...counts.map((count) => partitionOf(event.keyHash, count))])
    return [...partitions].map((partition) => ({ ...where, partition }))
  }

  /**
   * Takes note of topics whose count is being changed, which rest until that has
   * ended, and of those whose count is another than was known. Returns the names
   * of both: nothing may be sent to them that was placed before.
   */
  adopt(adopted: readonly AdoptedTopic[]): readonly string[] {
    for (const { topic } of adopted) this.#topicNamed(topic)
    const toldOf = new Map(adopted.map((each) => [each.topic, each]))
    return [...this.#topics].flatMap(([name, topic]) => {
      // One that is told of no more was adopted in a database that has gone back.
      const told = toldOf.get(name) ?? null
      if (isDeepStrictEqual(topic.told, told)) return []
      // A look-up under way may have its answer from before.
      topic.told = told
      topic.partitionCount = null
      topic.warning = null
      // Without an event that asks for it, what is told of a topic that was in use would stay as it was.
      if (restsFor(topic) === null && topic.checkedAt > 0) this.#look(name, topic)
      this.#options.onChange()
      return [name]
    })
  }

  /** The topics that rest while another count is adopted. */
  get adopting(): readonly { readonly topic: string; readonly adoption: string }[] {
    return [...this.#topics].flatMap(([name, topic]) => {
      const adoption = restsFor(topic)
      return adoption === null ? [] : [{ topic: name, adoption }]
    })
  }

  /** The topic of a key, by the rule or by the event's own override. A rule that fails names one that cannot be: it rests, alone and by name. */
  topicOf(event: OutboxEvent): string {
    return event.topic ?? this.#topicFor(event.aggregate.type)
  }

  /** Notes a failed publish that says something about the destination, and lets it rest for longer each time. */
  failed(error: PublishError): void {
    const { topic, reason } = error
    const isDestination = error.kind === 'destination'
    if (isDestination) this.#pauses.add({ topic, partition: null }, 'destination', reason)
    else this.#pauses.add({ topic, partition: error.partition }, 'outage', reason)
    // The topic is looked up again before anything more is sent to it.
    if (isDestination) this.#topicNamed(error.topic).partitionCount = null
  }

  /** Notes a success: the destination's pauses start small again. */
  succeeded({ topic, partition }: TopicPartition): void {
    this.#pauses.delete({ topic, partition })
    this.#pauses.delete({ topic, partition: null })
  }

  /** What a read at `now` should leave out: all that rests, topics that are being looked up, and what is `busy` besides. */
  exclusions(now: number, busy: readonly TopicPartition[]): readonly Exclusion[] {
    const unknown = [...this.#topics].flatMap(([topic, { partitionCount, checkingSince }]) =>
      partitionCount === null && checkingSince !== null ? [{ topic, partition: null }] : [],
    )
    const adopting = this.adopting.map(({ topic }) => ({ topic, partition: null }))
    return [...this.#pauses.resting(now), ...unknown, ...adopting, ...busy].map((pause) => this.#toExclusion(pause))
  }

  /** Milliseconds until the next pause ends; `null` when nothing rests. */
  nextChangeInMs(): number | null {
    return this.#pauses.nextEndInMs()
  }

  /** What rests or is being tried again, and topics that take long to look up, for readiness. */
  paused(): readonly PausedDestination[] {
    const before = this.#options.clock.now() - LONG_LOOKUP_MS
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
    return [...unknown, ...this.#pauses.told()]
  }

  /** What an operator should know of topics that have no fault. */
  warnings(): readonly string[] {
    const adopting = this.adopting.map(({ topic }) => `Topic ${topic} rests while another partition count is adopted`)
    return [...adopting, ...[...this.#topics.values()].flatMap(({ warning }) => (warning === null ? [] : [warning]))]
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
      earlierCounts: [],
      told: null,
      checkedAt: 0,
      checkingSince: null,
      warning: null,
    }
    this.#topics.set(name, topic)
    return topic
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
    if (topic.checkingSince !== null || this.#pauses.has({ topic: name, partition: null }, this.#options.clock.now()))
      return
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
      const before = await registry.recorded(name)
      const found = await this.#describeOrCreate(name, before?.partitionCount ?? null)
      const { told } = topic
      // Asked last: the broker took its time, and another count may have been adopted meanwhile.
      const recorded = await registry.record(name, found.partitionCount)
      if (topic.told !== told) return
      topic.earlierCounts = recorded.earlierCounts
      if (recorded.adoption !== null) {
        topic.partitionCount = null
        this.#pauses.wait({ topic: name, partition: null }, ADOPTION_LOOK_MS)
        return
      }
      const count = recorded.partitionCount
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
      this.#pauses.delete({ topic: name, partition: null })
      logger.debug({ topic: name, partitions: count }, 'Topic known')
    } catch (error) {
      // A re-check that fails changes nothing: sends will tell.
      if (topic.partitionCount !== null && !(error instanceof PublishError && error.kind === 'destination')) return
      topic.partitionCount = null
      const known = error instanceof PublishError
      const reason = known ? error.reason : 'the database could not be asked for its partition count'
      const kind = known && error.kind === 'destination' ? 'destination' : 'outage'
      this.#pauses.add({ topic: name, partition: null }, kind, reason)
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
