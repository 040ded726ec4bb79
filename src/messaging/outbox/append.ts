/**
 * The outbox: where events wait until Kafka has them.
 *
 * Events are stored in the transaction that changes the state they describe,
 * so there is never a change without its event, nor an event without its change.
 */
import type { Knex } from 'knex'
import type { DomainEvent, Envelope } from '../envelope.ts'
import { fromTables, InvalidEventError, InvalidOptionError, RolledBackError } from '../errors.ts'
import { requireKnown, requireLive, requireWhole, withDefaults } from '../options.ts'
import { type OpenSpan, startCreate } from '../telemetry/tracing.ts'
import { type GuardedCall, guardOf, handOut } from '../transaction/guard.ts'
import { type Enlistment, enlist, holdToOneLock } from './enlistment.ts'
import { insertEvent, insertEvents, lockAggregates, type StoredEvent, type TracedEvent } from './queries.ts'
import { type SealedEvent, seal } from './seal.ts'
import { defaultTopicFor, requireTopicRule, type TopicRule } from './topic-rule.ts'

/** How events are appended. */
export interface AppendOptions {
  /**
   * Waives the outbox's own lock, for aggregates whose row this transaction has
   * locked (`for update`) before it decided, as every writer of that aggregate
   * type does. Saves a round trip. All appends of a type have to agree.
   * @defaultValue false
   */
  readonly locked?: boolean
  /**
   * The relay's topic rule, for the names in traces and metrics; what is stored
   * does not depend on it.
   * @defaultValue `defaultTopicFor('')`
   */
  readonly topicFor?: TopicRule
  /**
   * Bytes of payload and headers, as stored, that an event may have. Keep it
   * below the topic's `max.message.bytes`: what is larger commits here and is
   * refused there.
   * @defaultValue 900_000
   */
  readonly maxEventBytes?: number
}

export const appendDefaults = {
  locked: false,
  topicFor: defaultTopicFor(''),
  maxEventBytes: 900_000,
} as const satisfies Required<AppendOptions>

/**
 * Stores `events`, in their order, for publication after `trx` commits; resolves
 * to them as they will be on the topic.
 *
 * Takes a transaction and not a connection, so it cannot be called outside one.
 * Locks the events' aggregates first: appended in one order and committed in
 * another, they would be published out of order. Decide after locking: lock the
 * aggregate's row and pass `locked`, or append before reading its state.
 *
 * Throws {@link InvalidEventError} before anything is written, also for what
 * only the database can measure; {@link NotInTransactionError} for a plain
 * handle, an ended transaction, one that has a savepoint open (with which the
 * event could be undone) or an append that nobody awaits;
 * {@link RolledBackError} when an earlier statement had failed and its error was
 * swallowed; {@link SchemaMismatchError} where there are no tables;
 * {@link InvalidOptionError} for `events` that are no list; database
 * errors as they come, after which the transaction can only roll back.
 */
export function appendToOutbox(
  trx: Knex.Transaction,
  events: readonly DomainEvent[],
  options: AppendOptions = {},
): Promise<readonly Envelope[]> {
  return handOut('appendToOutbox', (call) => append(trx, events, options, call))
}

async function append(
  trx: Knex.Transaction,
  events: readonly DomainEvent[],
  options: AppendOptions,
  call: GuardedCall,
): Promise<readonly Envelope[]> {
  const { locked, topicFor, maxEventBytes } = resolveAppendOptions(options)
  requireLive(trx, 'appendToOutbox')
  if (!Array.isArray(events)) throw new InvalidOptionError('events', events, 'a list, also of one event')
  const sealed = events.map(seal)
  if (sealed.length === 0) return []

  holdToOneLock(trx, new Set(sealed.map(({ aggregate }) => aggregate.type)), locked)
  const enlistment = enlist(trx)
  return await guardOf(trx).inTurn(call, async () => {
    requireLive(trx, 'appendToOutbox')
    try {
      if (!locked) await lock(trx, sealed, enlistment)
      return await fromTables(store(trx, sealed, { topicFor, maxEventBytes, enlistment }))
    } catch (error) {
      throw isAborted(error) ? new RolledBackError({ cause: error }) : error
    }
  })
}

async function lock(trx: Knex.Transaction, events: readonly SealedEvent[], enlistment: Enlistment): Promise<void> {
  const aggregates = new Map(events.map(({ aggregate }) => [`${aggregate.type}\0${aggregate.id}`, aggregate]))
  enlistment.reserveLocks([...aggregates.keys()])
  await lockAggregates(trx, [...aggregates.values()])
}

async function store(
  trx: Knex.Transaction,
  events: readonly SealedEvent[],
  { topicFor, maxEventBytes, enlistment }: { topicFor: TopicRule; maxEventBytes: number; enlistment: Enlistment },
): Promise<readonly Envelope[]> {
  const destinations = events.map(({ aggregate }) => topicFor(aggregate.type))
  const spans = events.map((event, index) => startSpan(event, destinations[index] ?? ''))
  try {
    const traced = events.map((event, index) => ({ ...event, trace: spans[index]?.trace ?? null }))
    const stored = await insert(trx, traced, maxEventBytes)
    const tooLarge = stored.findIndex(({ bytes }) => bytes > maxEventBytes)
    if (tooLarge >= 0) throw tooLargeError(tooLarge, stored[tooLarge]?.bytes, maxEventBytes)

    enlistment.add(events, destinations, stored[0]?.xid ?? '')
    for (const span of spans) span.end()
    return traced.map(({ keyHash: _, lane: __, ...envelope }, index) => ({
      ...envelope,
      payload: stored[index]?.payload ?? null,
    }))
  } catch (error) {
    for (const span of spans) span.end(error)
    throw error
  }
}

/** A single event that is too large goes on to the statement that says how large it is, and stores it no more than the first. */
async function insert(
  trx: Knex.Transaction,
  events: readonly TracedEvent[],
  maxEventBytes: number,
): Promise<readonly StoredEvent[]> {
  const [first, ...others] = events
  const single = first && others.length === 0 ? await insertEvent(trx, first, maxEventBytes) : null
  return single ? [single] : await insertEvents(trx, events, maxEventBytes)
}

function startSpan({ id, type, aggregate, payload }: SealedEvent, destination: string): OpenSpan {
  const bodyBytes = payload === null ? 0 : Buffer.byteLength(payload)
  return startCreate({ id, type, aggregate, bodyBytes }, destination)
}

function tooLargeError(index: number, bytes: number | undefined, maxEventBytes: number): InvalidEventError {
  return new InvalidEventError(
    'payload',
    `has ${bytes} bytes with its headers, as stored; maxEventBytes allows ${maxEventBytes}`,
    { index },
  )
}

/** SQLSTATE 25P02: an earlier statement had failed, and Postgres refuses all others of the transaction. */
function isAborted(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '25P02'
}

function resolveAppendOptions(options: AppendOptions): Required<AppendOptions> {
  requireKnown(options, appendDefaults)
  const resolved = withDefaults<AppendOptions, keyof AppendOptions>(options, appendDefaults)
  requireWhole('maxEventBytes', resolved.maxEventBytes)
  requireTopicRule(resolved.topicFor)
  if (typeof resolved.locked !== 'boolean') throw new InvalidOptionError('locked', resolved.locked, 'true or false')
  return resolved
}
