/** What can go wrong on purpose. Every code is in `docs/errors.md`, with cause and remedy. */
import type { TopicPartition } from './transport.ts'

/** The closed list of codes. Stable across versions. */
export type MessagingErrorCode =
  | 'MESSAGING_INVALID_OPTION'
  | 'MESSAGING_INVALID_EVENT'
  | 'MESSAGING_NOT_IN_TRANSACTION'
  | 'MESSAGING_COMMIT_UNKNOWN'
  | 'MESSAGING_ROLLED_BACK'
  | 'MESSAGING_PUBLISH_FAILED'
  | 'MESSAGING_SCHEMA_MISMATCH'
  | 'MESSAGING_NOT_ADOPTED'

/**
 * Every error this library throws on purpose. Tell them apart by `code`: it is
 * stable across versions, and true where `instanceof` is not (a second copy of
 * the package, another thread).
 */
export abstract class MessagingError extends Error {
  abstract readonly code: MessagingErrorCode
}

/** An option cannot be used. Thrown at start, before anything runs. */
export class InvalidOptionError extends MessagingError {
  override readonly name = 'InvalidOptionError'
  readonly code = 'MESSAGING_INVALID_OPTION'
  readonly option: string

  constructor(option: string, value: unknown, rule: string, shown = describe(value)) {
    super(`Option ${option} must be ${rule}; it is ${shown}`)
    this.option = option
  }
}

/** An event cannot be stored: the message names the event, the field and the rule. Nothing was written. */
export class InvalidEventError extends MessagingError {
  override readonly name = 'InvalidEventError'
  readonly code = 'MESSAGING_INVALID_EVENT'
  /** The field that breaks the rule, as a path: `aggregate.id`. */
  readonly field: string
  /** Which of the events given, from 0; `null` where there is only one. */
  readonly index: number | null

  constructor(field: string, rule: string, options: ErrorOptions & { index?: number } = {}) {
    const { index, ...rest } = options
    super(`${index === undefined ? "An event's" : `Event ${index}'s`} ${field} ${rule}`, rest)
    this.field = field
    this.index = index ?? null
  }
}

/** Something that belongs into a live transaction was done outside one. */
export class NotInTransactionError extends MessagingError {
  override readonly name = 'NotInTransactionError'
  readonly code = 'MESSAGING_NOT_IN_TRANSACTION'

  /** `caller`: whose call it was, as `appendToOutbox`; `null` where the transaction itself is what is wrong. */
  constructor(problem: string, caller: string | null = 'appendToOutbox') {
    super(
      caller === null
        ? `The transaction cannot go on: ${problem}`
        : `${caller} needs a live transaction: ${problem}. Call it inside inTransaction and await it`,
    )
  }
}

/** The answer to COMMIT was lost and could not be found out: the transaction may or may not have committed. */
export class CommitUnknownError extends MessagingError {
  override readonly name = 'CommitUnknownError'
  readonly code = 'MESSAGING_COMMIT_UNKNOWN'

  constructor(options?: ErrorOptions) {
    super('The connection to Postgres was lost during COMMIT: whether the transaction took effect is unknown', options)
  }
}

/** The transaction was rolled back, or can only be: a statement's error was swallowed, or the connection was lost before COMMIT took effect. */
export class RolledBackError extends MessagingError {
  override readonly name = 'RolledBackError'
  readonly code = 'MESSAGING_ROLLED_BACK'

  constructor({
    reason = 'one of its statements had failed and the error was swallowed',
    ...options
  }: ErrorOptions & { reason?: string } = {}) {
    super(`The transaction was rolled back: ${reason}`, options)
  }
}

/** What kind of failure a publish met: each is waited out, or counted, in its own way (outage, destination, record). */
export type PublishFailureKind = 'outage' | 'destination' | 'record'

export interface PublishFailure {
  readonly kind: PublishFailureKind
  /** Whether the broker certainly did not store the batch. */
  readonly outcome: 'refused' | 'unknown'
  /** The broker's or client's own word for it, such as `MESSAGE_TOO_LARGE`; bounded, fit for a metric label. */
  readonly reason: string
  readonly cause?: unknown
}

/** The broker did not accept a batch. The events stay in the outbox. */
export class PublishError extends MessagingError {
  override readonly name = 'PublishError'
  readonly code = 'MESSAGING_PUBLISH_FAILED'
  readonly topic: string
  /** `null` when the failure concerns the whole topic or broker. */
  readonly partition: number | null
  readonly kind: PublishFailureKind
  readonly outcome: 'refused' | 'unknown'
  readonly reason: string

  constructor(
    { topic, partition }: { topic: string; partition?: TopicPartition['partition'] },
    failure: PublishFailure,
  ) {
    const where = partition === undefined ? topic : `${topic}, partition ${partition}`
    super(`Could not publish to ${where}: ${failure.reason} (${failure.kind}, outcome ${failure.outcome})`, {
      cause: failure.cause,
    })
    this.topic = topic
    this.partition = partition ?? null
    this.kind = failure.kind
    this.outcome = failure.outcome
    this.reason = failure.reason
  }
}

/** The database's schema does not fit this release. The message has the command that mends it. */
export class SchemaMismatchError extends MessagingError {
  override readonly name = 'SchemaMismatchError'
  readonly code = 'MESSAGING_SCHEMA_MISMATCH'
}

/** How the library's tables are made, as all who miss them say. */
export const MIGRATE = "run: await migrate(db, messagingMigrations, 'messaging')"

const TABLES = 'outbox|held_keys|dead_letters|processed_events|consumer_offsets|topics|lane_leases|relay_workers'
const NO_TABLE = new RegExp(`relation "(${TABLES})" does not exist$`)

/** Passes on what a query of the library's own tables comes to; rejects with {@link SchemaMismatchError} where they are missing. */
export async function fromTables<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await query
  } catch (error) {
    if (!(error instanceof Error && NO_TABLE.test(error.message))) throw error
    throw new SchemaMismatchError(`The database has no outbox in its search path; ${MIGRATE}`, { cause: error })
  }
}

/**
 * A topic's new partition count was not adopted: relays go on with the one that is recorded. Where the database did
 * not answer in the end, as the message says then, nobody knows which that is, and it is safe to call again.
 */
export class AdoptionError extends MessagingError {
  override readonly name = 'AdoptionError'
  readonly code = 'MESSAGING_NOT_ADOPTED'
  /** The topic's name. */
  readonly topic: string

  constructor(topic: string, reason: string, options?: ErrorOptions) {
    super(`The partitions of ${topic} were not adopted: ${reason}`, options)
    this.topic = topic
  }
}

function describe(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : `a list of ${value.length}`
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value === 'function') return 'a function'
  // An address may hold a password.
  if (typeof value === 'string' && /[@/]/.test(value)) return 'a text that is not shown'
  return typeof value === 'string' ? JSON.stringify(value) : String(value)
}
