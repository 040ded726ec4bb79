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
import {
  requireFunction,
  requireKnown,
  requireLogger,
  requireMethods,
  requireText,
  requireWhole,
  usePostgres,
} from '../options.ts'
import { errorType } from '../telemetry/attributes.ts'
import { cleanTransaction } from '../transaction/clean-transaction.ts'
import type { Publisher } from '../transport.ts'
import { boundLocks, countRestless, freeVanishedLanes, keepRenewalsOut } from './lease-queries.ts'
import { REST_MS, RestWatch } from './rest-watch.ts'
import { type Adoption, beginAdoption, endAdoption, recordTopic, selectTopic, switchCount } from './topic-queries.ts'

/** Milliseconds between two looks at relays and consumers. */
const LOOK_MS = 250

const LOCK_NOT_AVAILABLE = '55P03'

/** What is adopted, where, and how long it may take. */
export interface AdoptPartitionsOptions {
  /** The relays' database. */
  readonly db: Knex
  /** Tells how many partitions the topic has. */
  readonly publisher: Pick<Publisher, 'describeTopic'>
  /** The topic's name, as it is on the broker. */
  readonly topic: string
  /**
   * Resolves to how many records of the topic its consumers have not processed
   * yet: all consumers whose order matters, also those in other services. Asked
   * again and again while the topic rests, until there are none; a rejection
   * counts as not known yet, except an {@link InvalidOptionError}, which ends it. For groups of this cluster: `countLag` of the Kafka
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

const adoptionOptions = {
  ...adoptionDefaults,
  db: true,
  publisher: true,
  topic: true,
  lag: true,
  signal: true,
  logger: true,
  clock: true,
} as const satisfies Record<keyof AdoptPartitionsOptions, unknown>

/** What was adopted. */
export interface AdoptedPartitions {
  /** The count before and the one in force now; the same where there was nothing to adopt. */
  readonly before: number
  readonly after: number
}

/**
 * Adopts the number of partitions that the topic has on the broker. May be
 * called at any time, from anywhere, with relays running.
 *
 * Rejects with {@link AdoptionError} when it cannot, or not in time: nothing has
 * changed then, unless the message says that the database did not answer in the
 * end. Rejects with {@link PublishError} when the broker does not tell, and with
 * {@link InvalidOptionError} for an option that cannot be used.
 */
export async function adoptPartitions(options: AdoptPartitionsOptions): Promise<AdoptedPartitions> {
  requireKnown(options, adoptionOptions)
  const { db, publisher, topic, signal, logger = silentLogger, clock = systemClock } = options
  const { timeoutMs = adoptionDefaults.timeoutMs } = options
  usePostgres(db)
  requireMethods('publisher', publisher, ['describeTopic'], 'made by createKafkaPublisher')
  requireText('topic', topic)
  requireFunction(
    'lag',
    options.lag,
    'a function that resolves to the number of records that consumers have not processed',
  )
  requireWhole('timeoutMs', timeoutMs)
  requireLogger(options.logger)
  const after = (await publisher.describeTopic(topic))?.partitionCount
  if (after === undefined) throw new AdoptionError(topic, 'the broker does not have it')
  const before = (await orFailed(topic, recordTopic(db, topic, after))).partitionCount
  if (after === before) return { before, after }
  if (after < before) throw new AdoptionError(topic, `it has ${after} partitions, and ${before} are in use`)

  const adoption: Adoption = { topic, adoption: randomUUID() }
  const isBegun = await orFailed(topic, beginAdoption(db, adoption, REST_MS))
  if (!isBegun) throw new AdoptionError(topic, 'somebody else is at it')
  logger.info({ topic, before, after }, 'Topic rests: its new partitions are being adopted')
  const watch = new RestWatch({ db, adoption, clock, timeoutMs, signal })
  try {
    await watch.during(() => untilSwitched({ ...options, clock }, { adoption, partitionCount: after }, watch))
  } catch (error) {
    await requireSwitched(db, { adoption, partitionCount: after }, error)
  }
  logger.info({ topic, before, after }, 'New partitions adopted')
  return { before, after }
}

/** What the database answers, or why the adoption has failed. */
async function orFailed<Answer>(topic: string, answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer
  } catch (error) {
    if (error instanceof AdoptionError) throw error
    throw new AdoptionError(topic, `the database failed it (${errorType(error)})`, { cause: error })
  }
}

interface Target {
  readonly adoption: Adoption
  readonly partitionCount: number
}

/** Ends the rest, and throws what `failure` means, unless the count has changed all the same: its answer may be what was lost. */
async function requireSwitched(db: Knex, { adoption, partitionCount }: Target, failure: unknown): Promise<void> {
  const { topic } = adoption
  let isInForce: boolean
  try {
    await endAdoption(db, adoption)
    isInForce = (await selectTopic(db, topic))?.partitionCount === partitionCount
  } catch {
    // The rest ends by itself.
    const reason = 'the database did not answer in the end, so nobody knows whether they were; call again'
    throw new AdoptionError(topic, reason, { cause: failure })
  }
  if (!isInForce) await orFailed(topic, Promise.reject(failure))
}

/** Resolves to whether the count has changed, once it has or `watch` has ended it. */
async function untilSwitched(
  { db, lag, clock }: Pick<AdoptPartitionsOptions, 'db' | 'lag'> & { readonly clock: Clock },
  target: Target,
  watch: RestWatch,
): Promise<boolean> {
  while (!watch.signal.aborted) {
    watch.obstacle = await findObstacle(db, lag, target.adoption)
    if (watch.obstacle === null && (await tryToSwitch(db, target))) return true
    await clock.pause(LOOK_MS, watch.signal)
  }
  return false
}

/** What has to end first, in the words of an operator; `null` when nothing. Relays first: what they still send is not in the lag yet. */
async function findObstacle(
  db: Knex,
  lag: () => Promise<bigint>,
  { topic, adoption }: Adoption,
): Promise<string | null> {
  const restless = await countRestless(db, adoption)
  if (restless > 0) return `${restless} relay workers have not come to rest`
  try {
    const behind = await lag()
    return behind > 0n ? `its consumers have ${behind} records before them` : null
  } catch (error) {
    if (error instanceof InvalidOptionError) throw new AdoptionError(topic, error.message, { cause: error })
    return `nobody can tell how far its consumers are (${errorType(error)})`
  }
}

/**
 * Changes the count, if the topic still rests and every live worker does.
 *
 * Renewals are kept out until that commits, so no worker comes to life between
 * the look at them and the change; each statement sees what came before the lock. A worker whose lease has ended may have been
 * frozen in the middle of a send: it loses its lanes, or it would go on with
 * them as if nothing had changed. Until it had lost them it could still mark
 * what it had sent, so then relays and consumers are looked at again; what it
 * has not marked is a copy.
 */
async function tryToSwitch(db: Knex, { adoption, partitionCount }: Target): Promise<boolean> {
  try {
    return await cleanTransaction(
      db,
      async (trx) => {
        await boundLocks(trx)
        await keepRenewalsOut(trx)
        if ((await countRestless(trx, adoption.adoption)) > 0) return false
        if ((await freeVanishedLanes(trx)) > 0) return false
        return await switchCount(trx, adoption, partitionCount)
      },
      { isolationLevel: 'read committed' },
    )
  } catch (error) {
    // A write of a worker that has vanished is still under way, for seconds at most.
    if (error instanceof Error && 'code' in error && error.code === LOCK_NOT_AVAILABLE) return false
    throw error
  }
}
