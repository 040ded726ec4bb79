/**
 * One relay worker: publishes the lanes that the relay assigns to it.
 *
 * It belongs in a thread of its own, whose entry file is the application's: it
 * builds a database pool and a publisher there and calls `runRelayWorker`.
 */
import type { Knex } from 'knex'
import { type Clock, systemClock } from '../lifecycle/clock.ts'
import { type Logger, silentLogger } from '../lifecycle/logger.ts'
import { requireKnown, requireLogger, requireMethods, requireWhole, usePostgres, withDefaults } from '../options.ts'
import { defaultTopicFor, requireTopicRule, type TopicRule } from '../outbox/topic-rule.ts'
import type { RelaySource, TopicRegistry } from '../source.ts'
import type { Publisher, TopicSpec } from '../transport.ts'
import { BrokerWatch } from './broker-watch.ts'
import { LaneLoop } from './lane-loop.ts'
import { type RelaySettings, resolveRelaySettings } from './options.ts'
import { createPostgresSource, createPostgresTopicRegistry } from './postgres-source.ts'
import type { FromWorker, Line, ToWorker } from './protocol.ts'

/** What the relay needs to know to make topics and place events. */
export interface TopicOptions {
  /**
   * The topic of an aggregate type. All events of an aggregate go to one topic,
   * or their order is lost.
   * @defaultValue `<aggregate type>.events`
   */
  readonly topicFor?: TopicRule
  /**
   * How a topic is made at its first use; `null` never makes one, and a missing
   * topic then rests until somebody else has made it.
   * @defaultValue 8 partitions, replicated as the broker does by default
   */
  readonly createTopics?: TopicSpec | null
}

/** The defaults of {@link TopicOptions}. */
export const topicDefaults = {
  topicFor: defaultTopicFor(''),
  createTopics: { partitionCount: 8, replicationFactor: null },
} as const satisfies Required<TopicOptions>

/** Throws {@link InvalidOptionError} for topics that no broker can make, and for what plain JavaScript may call them. */
export function requireTopicSpec(createTopics: TopicSpec | null | undefined): void {
  if (createTopics === null || createTopics === undefined) return
  requireKnown(createTopics, { partitionCount: true, replicationFactor: true }, 'createTopics.')
  const { partitionCount, replicationFactor }: Partial<TopicSpec> = createTopics
  requireWhole('createTopics.partitionCount', partitionCount)
  if (replicationFactor !== null && replicationFactor !== undefined) {
    requireWhole('createTopics.replicationFactor', replicationFactor)
  }
}

export interface RelayWorkerOptions extends TopicOptions {
  /** The worker's end of the line to its relay: `workerLine(parentPort)` in a thread. */
  readonly line: Line<FromWorker, ToWorker>
  /** A pool of this worker's own; three connections suffice. */
  readonly db: Knex
  /** A publisher of this worker's own. The worker does not close it. */
  readonly publisher: Publisher
  /** The same as the relay's. */
  readonly settings?: RelaySettings
  /** @defaultValue silent */
  readonly logger?: Logger
}

const workerOptions = {
  ...topicDefaults,
  line: true,
  db: true,
  publisher: true,
  settings: true,
  logger: true,
} as const satisfies Record<keyof RelayWorkerOptions, unknown>

/**
 * Publishes until the relay says to drain; resolves once everything in hand is
 * settled and the lanes are given back. Waits out every outage of database and
 * broker; rejects only for a fault in the code.
 * @throws InvalidOptionError for settings that cannot be used, or without `line`
 */
export async function runRelayWorker(options: RelayWorkerOptions): Promise<void> {
  requireKnown(options, workerOptions)
  const { line, db } = options
  requireMethods('line', line, ['post', 'listen', 'close'], "workerLine(parentPort), in a thread's entry file")
  usePostgres(db)
  requireMethods('publisher', options.publisher, ['publish', 'ping'], 'made by createKafkaPublisher')
  requireTopicRule(options.topicFor)
  requireTopicSpec(options.createTopics)
  requireLogger(options.logger)
  const topics = withDefaults<TopicOptions, keyof TopicOptions>(options, topicDefaults)
  await runWorker({
    line,
    publisher: options.publisher,
    source: createPostgresSource({ db, topicFor: topics.topicFor }),
    registry: createPostgresTopicRegistry(db),
    topicFor: topics.topicFor,
    createTopics: topics.createTopics,
    settings: options.settings ?? {},
    logger: options.logger ?? silentLogger,
    clock: systemClock,
  })
}

export interface WorkerParts extends Required<TopicOptions> {
  readonly line: Line<FromWorker, ToWorker>
  readonly publisher: Publisher
  readonly source: RelaySource
  readonly registry: TopicRegistry
  readonly settings: RelaySettings
  readonly logger: Logger
  readonly clock: Clock
}

/** The same over any source and clock, for a simulation. */
export async function runWorker(parts: WorkerParts): Promise<void> {
  const { line, publisher, clock } = parts
  const drain = new AbortController()
  const cancel = new AbortController()
  const end = new AbortController()
  const settings = resolveRelaySettings(parts.settings)
  const loop = new LaneLoop({
    ...parts,
    settings,
    shutdown: { draining: drain.signal, cancelled: cancel.signal },
    onGone: (lanes) => line.post({ kind: 'gone', lanes }),
    onRest: (adoptions) => line.post({ kind: 'at rest', adoptions }),
  })
  const broker = new BrokerWatch({ publisher, clock })

  line.listen((message) => {
    switch (message.kind) {
      case 'lanes':
        loop.assign(message.owner, message.grants)
        return
      case 'renewed':
        loop.renewed(message.term)
        return
      case 'yield':
        loop.yield(message.lanes)
        return
      case 'wake':
        loop.wake(message.lanes)
        return
      case 'requests':
        loop.requested(message.lanes)
        return
      case 'topics':
        loop.adopted(message.topics)
        return
      case 'drain':
        drain.abort()
        return
      case 'cancel':
        drain.abort()
        cancel.abort()
        return
    }
  })
  line.post({ kind: 'ready' })

  async function beat(): Promise<void> {
    while (!end.signal.aborted) {
      line.post({ kind: 'heartbeat', report: { ...loop.report(), brokerProblem: broker.problem } })
      // As often as the relay looks for it.
      await clock.pause(settings.pollIntervalMs, end.signal)
    }
  }
  const background = Promise.all([beat(), broker.run(end.signal)])
  try {
    await loop.run()
  } finally {
    end.abort()
    await background
    line.post({ kind: 'heartbeat', report: { ...loop.report(), brokerProblem: broker.problem } })
    line.post({ kind: 'drained' })
    line.close()
  }
}
