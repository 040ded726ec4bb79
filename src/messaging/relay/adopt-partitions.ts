/**
 * Lets relays use the partitions that were added to a topic.
 *
 * Another count moves keys to other partitions, and what is on the old one must
 * have taken effect before anything is on the new one. So the topic rests for
 * all relays alike, by its row in the database: what is on its way ends, the
 * consumers catch up, the count changes, and the relays go on. Mutations and all
 * other topics go on throughout; events of this one wait in the outbox.
 *
 * The rest ends by itself when nobody extends it: a caller that dies leaves the
 * topic as it was.
 */
import { randomUUID } from 'node:crypto'
import type { Knex } from 'knex'
import { AdoptionError, InvalidOptionError } from '../errors.ts'
import { type Clock, systemClock } from '../lifecycle/clock.ts'
import { type Logger, silentLogger } from '../lifecycle/logger.ts'
import { errorType } from '../telemetry/attributes.ts'
import type { Publisher } from '../transport.ts'
import {
  beginAdoption,
  countRestless,
  endAdoption,
  extendAdoption,
  recordTopic,
  selectTopic,
  switchCount,
} from './topic-queries.ts'

/** Milliseconds for which the topic rests on without a word from the caller. */
const REST_MS = 15_000
/** Milliseconds between two words. */
const EXTEND_MS = 3_000
/** Milliseconds between two looks at relays and consumers. */
const LOOK_MS = 250

const LOCK_NOT_AVAILABLE = '55P03'

export interface AdoptPartitionsOptions {
  /** The relays' database. */
  readonly db: Knex
  /** Tells how many partitions the topic has. */
  readonly publisher: Pick<Publisher, 'describeTopic'>
  readonly topic: string
  /**
   * Resolves to how many records of the topic its consumers have not processed
   * yet: all consumers whose order matters, also those in other services. Asked
   * again and again while the topic rests, until there are none; a rejection
   * counts as not known yet. For groups of this cluster: `countLag` of the Kafka
   * driver.
   */
  readonly lag: () => Promise<bigint>
  /**
   * Milliseconds for which the topic rests at most. Longer waits for slower
   * consumers; the events of the topic wait with them.
   * @defaultValue 120_000
   */
  readonly timeoutMs?: number
  /** Gives up: the topic goes on as it was. @defaultValue never */
  readonly signal?: AbortSignal
  /** @defaultValue silent */
  readonly logger?: Logger
  /** @defaultValue the system's */
  readonly clock?: Clock
}

/** The defaults of {@link AdoptPartitionsOptions}. */
export const adoptionDefaults = { timeoutMs: 120_000 } as const

/** What was adopted. */
export interface AdoptedPartitions {
  /** The count before and the one in force now; the same where there was nothing to adopt. */
  readonly before: number
  readonly after: number
}

/**
 * Adopts the number of partitions that the topic has on the broker. Rejects
 * with {@link AdoptionError} when it cannot, or not in time: then nothing has
 * changed. May be called at any time, from anywhere, with relays running.
 */
export async function adoptPartitions(options: AdoptPartitionsOptions): Promise<AdoptedPartitions> {
  const { db, publisher, topic, logger = silentLogger, clock = systemClock } = options
  const { timeoutMs = adoptionDefaults.timeoutMs } = options
  if (!(Number.isSafeInteger(timeoutMs) && timeoutMs > 0)) {
    throw new InvalidOptionError('timeoutMs', timeoutMs, 'a positive whole number')
  }
  const after = (await publisher.describeTopic(topic))?.partitionCount
  if (after === undefined) throw new AdoptionError(topic, 'the broker does not have it')
  const before = (await selectTopic(db, topic))?.partitionCount ?? (await recordTopic(db, topic, after)).partitionCount
  if (after === before) return { before, after }
  if (after < before) throw new AdoptionError(topic, `it has ${after} partitions, and ${before} are in use`)

  const adoption = randomUUID()
  if (!(await beginAdoption(db, topic, adoption, REST_MS))) throw new AdoptionError(topic, 'somebody else is at it')
  logger.info({ topic, before, after }, 'Topic rests: its new partitions are being adopted')
  const watch = new RestWatch({ ...options, clock, timeoutMs }, adoption)
  try {
    await watch.during(() => untilSwitched({ ...options, clock }, { topic, adoption, partitionCount: after }, watch))
  } catch (error) {
    if (!(await isInForce(db, { topic, adoption, partitionCount: after }))) {
      throw error instanceof AdoptionError ? error : new AdoptionError(topic, 'it failed on the way', { cause: error })
    }
  }
  logger.info({ topic, before, after }, 'New partitions adopted')
  return { before, after }
}

interface Adoption {
  readonly topic: string
  readonly adoption: string
  readonly partitionCount: number
}

/** Ends the rest, and sees whether the change had come about all the same: its answer may be what was lost. */
async function isInForce(db: Knex, { topic, adoption, partitionCount }: Adoption): Promise<boolean> {
  try {
    await endAdoption(db, topic, adoption)
    return (await selectTopic(db, topic))?.partitionCount === partitionCount
  } catch {
    // A database that is away: the rest ends by itself.
    return false
  }
}

async function untilSwitched(
  { db, lag, clock }: Pick<AdoptPartitionsOptions, 'db' | 'lag'> & { readonly clock: Clock },
  wanted: Adoption,
  watch: RestWatch,
): Promise<void> {
  while (!watch.signal.aborted) {
    watch.waitsFor = await waitsFor(db, lag, wanted.adoption)
    if (watch.waitsFor === null && (await tryToSwitch(db, wanted))) return
    await clock.pause(LOOK_MS, watch.signal)
  }
}

async function tryToSwitch(db: Knex, wanted: Adoption): Promise<boolean> {
  try {
    return await db.transaction((trx) => switchCount(trx, wanted))
  } catch (error) {
    // A write of a worker that has vanished is still under way, for seconds at most.
    if (error instanceof Error && 'code' in error && error.code === LOCK_NOT_AVAILABLE) return false
    throw error
  }
}

/** Relays first: what they still send is not in the lag yet. */
async function waitsFor(db: Knex, lag: () => Promise<bigint>, adoption: string): Promise<string | null> {
  const restless = await countRestless(db, adoption)
  if (restless > 0) return `${restless} relay workers have not come to rest`
  try {
    const behind = await lag()
    return behind > 0n ? `its consumers have ${behind} records before them` : null
  } catch (error) {
    return `nobody can tell how far its consumers are (${errorType(error)})`
  }
}

/** Extends the rest until the work is done, and ends the work when the rest is over, the time is up, or the caller gives up. */
class RestWatch {
  /** What is waited for, for who asks why it took too long. */
  waitsFor: string | null = null
  readonly #options: AdoptPartitionsOptions & { readonly clock: Clock; readonly timeoutMs: number }
  readonly #adoption: string
  readonly #ended = new AbortController()

  constructor(options: AdoptPartitionsOptions & { clock: Clock; timeoutMs: number }, adoption: string) {
    this.#options = options
    this.#adoption = adoption
  }

  /** Aborts when the work is to end, done or not. */
  get signal(): AbortSignal {
    return this.#ended.signal
  }

  async during(work: () => Promise<void>): Promise<void> {
    const ended = new AbortController()
    const watching = this.#watch(ended.signal).finally(() => this.#ended.abort())
    watching.catch(() => {})
    try {
      await Promise.race([work(), watching])
    } finally {
      ended.abort()
    }
  }

  /** Rejects with why the rest is over; resolves once the work has ended. */
  async #watch(ended: AbortSignal): Promise<void> {
    const { db, topic, clock, timeoutMs, signal } = this.#options
    const until = clock.now() + timeoutMs
    const either = signal ? AbortSignal.any([ended, signal]) : ended
    while (!ended.aborted) {
      if (signal?.aborted) throw new AdoptionError(topic, 'it was given up')
      const left = until - clock.now()
      if (left <= 0) {
        throw new AdoptionError(topic, `${this.waitsFor ?? 'the database has not answered'} after ${timeoutMs} ms`)
      }
      if (!(await extendAdoption(db, topic, this.#adoption, REST_MS))) {
        throw new AdoptionError(topic, 'its rest had ended meanwhile')
      }
      await clock.pause(Math.min(EXTEND_MS, left), either)
    }
  }
}
