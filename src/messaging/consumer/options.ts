/** How a consumer behaves. Every option has a default; see each for what it trades. */
import type { Knex } from 'knex'
import { InvalidOptionError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import {
  requireFunction,
  requireKnown,
  requireLogger,
  requireMethods,
  requireWhole,
  usePostgres,
  withDefaults,
} from '../options.ts'
import { errorType } from '../telemetry/attributes.ts'
import type { Subscriber } from '../transport.ts'
import { defaultAggregateTypeOf } from './decode.ts'
import type { HandlerSet } from './handlers.ts'

/** Characters of an aggregate's type that is read from a topic's name, and may be all of it. */
const MAX_TYPE_LENGTH = 249

/** What a consumer is, and what it works with. */
export interface ConsumerOptions extends ConsumerTuning {
  /** Its name. With the prefix in front it is the group id, and what the inbox keeps its memory under: never change it. */
  readonly name: string
  /** The topics, by their full names on the broker. */
  readonly topics: readonly string[]
  /** Where the handlers' effects and the memory of processed events live. One connection per partition in work. */
  readonly db: Knex
  readonly subscriber: Subscriber
  /** Made by `defineHandlers` or `defineSetHandler`. */
  readonly handlers: HandlerSet
  /** What group ids and topic names begin with. @defaultValue none */
  readonly topicPrefix?: string
  /**
   * The aggregate type of a topic's records that carry none in a header: a key's
   * name, and so the same for ever. Asked once for each of `topics`, before
   * anything runs; where it throws or answers no text, the consumer does not start.
   * @defaultValue `order` of `<prefix>order.events`
   */
  readonly aggregateTypeOf?: (topic: string) => string
  /** @defaultValue silent */
  readonly logger?: Logger
  /** @defaultValue the system's */
  readonly clock?: Clock
}

/** What can be tuned. */
export interface ConsumerTuning {
  /**
   * Events that share one transaction at most. More raises throughput; it also
   * raises what a failing event makes run again. A consumer with slow handlers
   * takes fewer by itself.
   * @defaultValue 500
   */
  readonly batchSize?: number
  /**
   * Milliseconds that a handler may take for one event, or a set handler for
   * one batch. Then its connection is destroyed and the attempt has failed.
   * More lets honest slow work end; less frees the partition sooner.
   * @defaultValue 30_000
   */
  readonly handlerTimeoutMs?: number
  /**
   * Attempts at one event before its key is parked and the others go on.
   * `Infinity` never parks: the partition waits until the handler succeeds.
   * @defaultValue 5
   */
  readonly maxAttempts?: number
  /**
   * Milliseconds before the second attempt; each further pause is twice as
   * long. With the default of five attempts a key is parked after about 30 s.
   * @defaultValue 2_000
   */
  readonly retryFirstMs?: number
  /**
   * Milliseconds that no pause between attempts exceeds.
   * @defaultValue 30_000
   */
  readonly retryMaxMs?: number
  /**
   * Milliseconds that a stopping consumer gives the transactions in hand. What
   * is cut then rolls back and is delivered again at the next start.
   * @defaultValue 10_000
   */
  readonly graceMs?: number
  /**
   * Gives a record without `event_id` header an id made from its place, so that
   * topics of foreign producers can be consumed. A record that is produced
   * twice then has two effects. Off, such a record becomes a dead letter.
   * @defaultValue false
   */
  readonly deriveIds?: boolean
  /**
   * Publishes each dead letter to `<topic>.<group>.dlq` too, by an outbox row.
   * Needs a relay on this consumer's database.
   * @defaultValue true
   */
  readonly deadLetterTopics?: boolean
}

/** The defaults of {@link ConsumerTuning}. */
export const consumerDefaults = {
  batchSize: 500,
  handlerTimeoutMs: 30_000,
  maxAttempts: 5,
  retryFirstMs: 2_000,
  retryMaxMs: 30_000,
  graceMs: 10_000,
  deriveIds: false,
  deadLetterTopics: true,
} as const satisfies Required<ConsumerTuning>

const consumerOptions = {
  ...consumerDefaults,
  name: true,
  topics: true,
  db: true,
  subscriber: true,
  handlers: true,
  topicPrefix: true,
  aggregateTypeOf: true,
  logger: true,
  clock: true,
} as const satisfies Record<keyof ConsumerOptions, unknown>

/** Throws {@link InvalidOptionError} for what plain JavaScript can leave out or misspell, and handlers that nobody has defined. */
export function requireParts(options: Partial<ConsumerOptions>): void {
  requireKnown(options, consumerOptions)
  const { db, subscriber, handlers } = options
  requireLogger(options.logger)
  usePostgres(db)
  requireMethods('subscriber', subscriber, ['subscribe'], 'made by createKafkaSubscriber')
  if (options.aggregateTypeOf !== undefined) {
    requireFunction('aggregateTypeOf', options.aggregateTypeOf, "a function of a topic's name")
  }
  if (!(handlers?.types instanceof Set)) {
    throw new InvalidOptionError('handlers', handlers, 'made by defineHandlers or defineSetHandler')
  }
}

/** Fills in the defaults. Throws {@link InvalidOptionError} naming the first option that cannot be used. */
export function resolveTuning(options: ConsumerTuning): Required<ConsumerTuning> {
  const resolved = withDefaults<ConsumerTuning, keyof ConsumerTuning>(options, consumerDefaults)
  for (const [option, value] of Object.entries(resolved)) {
    if (typeof consumerDefaults[option as keyof ConsumerTuning] === 'boolean') {
      if (typeof value !== 'boolean') throw new InvalidOptionError(option, value, 'true or false')
    } else if (!(option === 'maxAttempts' && value === Number.POSITIVE_INFINITY)) {
      requireWhole(option, value)
    }
  }
  return resolved
}

/** The group id: `<prefix><name>`. Throws {@link InvalidOptionError} for a name that cannot be one. */
export function groupIdOf({ name, topicPrefix = '' }: Pick<ConsumerOptions, 'name' | 'topicPrefix'>): string {
  if (typeof name !== 'string' || !/^[\w.-]{1,100}$/.test(name)) {
    throw new InvalidOptionError('name', name, '1 to 100 letters, digits, dots, dashes or underscores')
  }
  const group = `${topicPrefix}${name}`
  if (group === 'relay')
    throw new InvalidOptionError('name', name, 'another word: held keys of the relay stand under it')
  return group
}

/** The topics to subscribe to. Throws {@link InvalidOptionError} when there are none or one has a name that no topic has. */
export function topicsOf({ topics }: Pick<ConsumerOptions, 'topics'>): readonly string[] {
  if (!Array.isArray(topics) || topics.length === 0) {
    throw new InvalidOptionError('topics', topics, 'a list of topic names, not empty')
  }
  for (const topic of topics) {
    if (typeof topic !== 'string' || !/^[\w.-]{1,249}$/.test(topic)) {
      throw new InvalidOptionError('topics', topic, 'names of 1 to 249 letters, digits, dots, dashes or underscores')
    }
  }
  return [...new Set(topics)]
}

/**
 * The aggregate type of each of `topics`, asked for before anything runs: what
 * the application's function throws later would stop a partition, and an answer
 * that changed would part an event from the key that it has to wait behind.
 * Throws {@link InvalidOptionError} for a topic that has no usable answer.
 */
export function aggregateTypesOf(
  { aggregateTypeOf, topicPrefix = '' }: Pick<ConsumerOptions, 'aggregateTypeOf' | 'topicPrefix'>,
  topics: readonly string[],
): (topic: string) => string {
  const ask = aggregateTypeOf ?? defaultAggregateTypeOf(topicPrefix)
  const types = new Map(topics.map((topic) => [topic, typeOf(ask, topic)]))
  // A key that was parked under another list of topics can still be resumed: of its topic nobody has asked yet.
  return (topic) => types.get(topic) ?? typeOf(ask, topic)
}

function typeOf(ask: (topic: string) => string, topic: string): string {
  const rule = `a function that answers text of 1 to ${MAX_TYPE_LENGTH} characters for ${topic}`
  let type: unknown
  try {
    type = ask(topic)
  } catch (error) {
    // Without the error, whose message may hold anything.
    throw new InvalidOptionError('aggregateTypeOf', ask, rule, `one that throws (${errorType(error)})`)
  }
  if (typeof type !== 'string' || type === '' || type.length > MAX_TYPE_LENGTH || type.includes('\0')) {
    throw new InvalidOptionError('aggregateTypeOf', type, rule)
  }
  return type
}
