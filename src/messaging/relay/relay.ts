/**
 * The relay: publishes what the outbox holds, in order per aggregate.
 *
 * This is the part that owns the workers: it leases lanes for them, wakes them,
 * replaces those that die, and says how things stand. Any number of relay
 * processes share the 64 lanes by themselves.
 */
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import type { Knex } from 'knex'
import { InvalidOptionError } from '../errors.ts'
import { unlessAborted, within } from '../lifecycle/call-watch.ts'
import { type Clock, systemClock } from '../lifecycle/clock.ts'
import { lastingState } from '../lifecycle/lasting-state.ts'
import { type Logger, silentLogger } from '../lifecycle/logger.ts'
import { type Running, run, type Shutdown } from '../lifecycle/running.ts'
import { Wake } from '../lifecycle/wake.ts'
import {
  requireFunction,
  requireKnown,
  requireLogger,
  requireMethods,
  requireObject,
  usePostgres,
  withDefaults,
} from '../options.ts'
import { onCommitted } from '../outbox/committed.ts'
import { requireTopicRule } from '../outbox/topic-rule.ts'
import type { LaneDirectory } from '../source.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { Publisher } from '../transport.ts'
import { Crew } from './crew.ts'
import { Leases } from './leases.ts'
import { type RelaySettings, type ResolvedRelaySettings, relayDefaults, resolveRelaySettings } from './options.ts'
import { createPostgresDirectory } from './postgres-source.ts'
import { measureRelay, Progress, type RelayStatus, toStatus } from './relay-status.ts'
import { type RelayThreads, spawnInline, spawnThread, type WorkerHandle } from './spawn.ts'
import { WakeListener } from './wake-listener.ts'
import { requireTopicSpec, runRelayWorker, type TopicOptions, topicDefaults } from './worker.ts'

/** Milliseconds that a relay waits at its very end for what it has ended. */
const END_MS = 2_000

/** What `startRelay` itself goes by, whether its workers have threads or not. */
type SupervisorSettings = Pick<RelaySettings, 'pollIntervalMs' | 'leaseMs' | 'graceMs'>

/** What a worker goes by: with threads each is given it by its entry file. */
type WorkerOptions = Omit<RelaySettings, keyof SupervisorSettings> & InlineRelay

/**
 * A relay in threads: the way of a service. What a worker goes by is told to
 * `runRelayWorker` in the thread, and refused here.
 */
export interface ThreadedRelay extends SupervisorSettings, Partial<Record<keyof WorkerOptions, never>> {
  readonly threads: RelayThreads
}

/** A relay whose only worker runs in this thread: for tests, and for services of little traffic. */
export interface InlineRelay extends TopicOptions {
  /** Closed by its maker, after the relay has stopped. */
  readonly publisher: Publisher
}

export type RelayOptions = {
  /** For leases and wake-ups: two statements a second. Workers in threads have pools of their own. */
  readonly db: Knex
  /** Where the relay writes; workers in threads have loggers of their own. @defaultValue silent */
  readonly logger?: Logger
} & (ThreadedRelay | (InlineRelay & RelaySettings))

/** {@link WorkerOptions} by their names, for plain JavaScript. */
const workerOptions = {
  publisher: true,
  topicFor: true,
  createTopics: true,
  batchSize: true,
  maxInHandBytes: true,
  maxBatchBytes: true,
  maxAttempts: true,
} as const satisfies Record<keyof WorkerOptions, true>

const relayOptions = { ...relayDefaults, ...workerOptions, db: true, logger: true, threads: true }
const threadOptions = { entry: true, count: true, workerData: true } as const satisfies Record<keyof RelayThreads, true>

/** A relay that runs. */
export interface Relay extends Running {
  status(): RelayStatus
}

/**
 * Starts a relay. Resolves nothing by itself: outages are waited out, and
 * `status` tells of them; `done` rejects only for a fault in the code.
 * @throws InvalidOptionError for the first option that cannot be used
 */
export function startRelay(options: RelayOptions): Relay {
  requireObject('options', options)
  const { db, logger = silentLogger } = options
  usePostgres(db)
  requireHeeded(options)
  const settings = resolveRelaySettings(settingsOf(options))
  return superviseRelay({
    directory: createPostgresDirectory(db),
    listener: (onWake) => new WakeListener({ db, clock: systemClock, logger, onWake }),
    spawn: spawner(options, logger),
    count: countOf(options),
    createOwner: randomUUID,
    settings,
    logger,
    clock: systemClock,
  })
}

export interface RelayParts {
  readonly directory: LaneDirectory
  readonly listener: (onWake: (lanes: readonly number[]) => void) => Pick<WakeListener, 'run' | 'listening'>
  readonly spawn: (index: number) => WorkerHandle
  readonly count: number
  /** A uuid for each start of a worker; a simulation repeats them. */
  readonly createOwner: () => string
  readonly settings: ResolvedRelaySettings
  readonly logger: Logger
  readonly clock: Clock
}

/** The same over any lane directory, workers and clock, for a simulation. */
export function superviseRelay(parts: RelayParts): Relay {
  const { settings, clock, logger, directory } = parts
  const wake = new Wake(clock)
  const progress = new Progress(clock)
  const ended = new AbortController()
  const shared: { crew?: Crew; leases?: Leases; listener?: Pick<WakeListener, 'listening'> } = {}

  async function supervise({ draining, cancelled }: Shutdown): Promise<void> {
    const crew = new Crew({
      ...parts,
      pollIntervalMs: settings.pollIntervalMs,
      draining,
      onChange: () => wake.wake(),
      onEnded: async (owner) => {
        // Without this the lanes expire by themselves, seconds later.
        await directory.retire(owner).catch(() => {})
      },
    })
    const leases = new Leases({ directory, crew, leaseMs: settings.leaseMs, clock, logger })
    const listener = parts.listener((lanes) => leases.wake(lanes))
    Object.assign(shared, { crew, leases, listener })
    using _commits = onCommitted(({ lanes }) => leases.wake(lanes))
    const listening = listener.run(ended.signal)
    const failing = lastingState(clock)

    while (!draining.aborted) {
      const renewal = leases.tick({ wakesArrive: listener.listening })
      await unlessAborted(renewal, cancelled).then(
        () => {
          progress.renewed(crew.members)
          failing.ends((lasting) => logger.info(lasting, 'The leases are renewed again'))
        },
        (error: unknown) => {
          progress.failed(error)
          if (!cancelled.aborted) failing.holds((lasting) => logger.warn(lasting, progress.problem ?? ''))
        },
      )
      measureRelay(crew.members, listener.listening)
      await wake.within(settings.pollIntervalMs, draining)
    }
    const renewing = keepRenewing(leases)
    await Promise.race([crew.drain(cancelled), afterGrace(cancelled)])
    ended.abort()
    // A database that hangs keeps nobody from ending.
    await within(Promise.all([crew.terminate(), listening, renewing]), END_MS, clock)
  }

  /** A draining worker still settles under its leases. */
  async function keepRenewing(leases: Leases): Promise<void> {
    while (!ended.signal.aborted) {
      await clock.pause(settings.pollIntervalMs, ended.signal)
      if (!ended.signal.aborted) await leases.renewOnly().catch(() => {})
    }
  }

  /** Resolves a second after the grace period: time for workers to give their lanes back. */
  async function afterGrace(cancelled: AbortSignal): Promise<void> {
    if (!cancelled.aborted) await new Promise((resolve) => cancelled.addEventListener('abort', resolve, { once: true }))
    await clock.pause(1_000, ended.signal)
  }

  const running = run((shutdown) => untraced(() => supervise(shutdown)), { ...settings, clock })
  return { ...running, status: () => toStatus({ ...shared, progress }) }
}

/**
 * An option that nobody goes by is refused: events would go to the wrong topics,
 * in silence. So is one that its worker would die of, again and again.
 */
function requireHeeded(options: RelayOptions): void {
  requireKnown(options, relayOptions)
  requireLogger(options.logger)
  if (!isThreaded(options)) {
    const { publisher, createTopics }: Partial<InlineRelay> = options
    if (publisher === undefined) {
      throw new InvalidOptionError('publisher', publisher, 'given, or threads that have one each')
    }
    requireMethods('publisher', publisher, ['publish', 'ping'], 'made by createKafkaPublisher')
    requireTopicRule(options.topicFor)
    requireTopicSpec(createTopics)
    return
  }
  requireKnown(options.threads, threadOptions, 'threads.')
  const { entry, workerData } = options.threads
  if (!(entry instanceof URL && existsSync(entry))) {
    throw new InvalidOptionError('threads.entry', entry, 'the URL of a file that exists')
  }
  if (workerData !== undefined) requireFunction('threads.workerData', workerData, "a function of the thread's index")
  for (const [option, value] of Object.entries(options)) {
    if (option in workerOptions && value !== undefined) {
      throw new InvalidOptionError(
        option,
        value,
        "given to runRelayWorker in the thread's entry file, not to startRelay",
      )
    }
  }
}

function isThreaded(options: RelayOptions): options is Extract<RelayOptions, ThreadedRelay> {
  return 'threads' in options && options.threads !== undefined
}

function spawner(options: RelayOptions, logger: Logger): (index: number) => WorkerHandle {
  if (isThreaded(options)) return (index) => spawnThread(options.threads, index)
  const { db, publisher } = options
  const { topicFor, createTopics } = withDefaults<TopicOptions, keyof TopicOptions>(options, topicDefaults)
  const settings = settingsOf(options)
  return () => spawnInline((line) => runRelayWorker({ db, publisher, topicFor, createTopics, settings, logger, line }))
}

function countOf(options: RelayOptions): number {
  if (!isThreaded(options)) return 1
  const { count } = options.threads
  if (!(Number.isSafeInteger(count) && count >= 1 && count <= 64)) {
    throw new InvalidOptionError('threads.count', count, 'a whole number from 1 to 64')
  }
  return count
}

function settingsOf(options: RelaySettings): RelaySettings {
  const { batchSize, maxInHandBytes, maxBatchBytes, pollIntervalMs, leaseMs, maxAttempts, graceMs } = options
  const given = { batchSize, maxInHandBytes, maxBatchBytes, pollIntervalMs, leaseMs, maxAttempts, graceMs }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}
