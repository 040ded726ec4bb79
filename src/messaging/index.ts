/** The library's only door, besides `./kafka` and `./testing`. A guard pins the list. */

export { type Consumer, startConsumer } from './consumer/consumer.ts'
export {
  type AnyEventOf,
  defineHandlers,
  defineSetHandler,
  type Handler,
  type HandlerSet,
  type Handlers,
  type ReceivedEvent,
} from './consumer/handlers.ts'
export type { ConsumerOptions, ConsumerTuning } from './consumer/options.ts'
export type { ConsumerStatus } from './consumer/status.ts'
export type { HeldKeyRef, HeldKeyRequest } from './dead-letters/held-keys.ts'
export {
  type DeadLetterFilter,
  dismissForeignRecord,
  type HeldKeyFilter,
  type ListedDeadLetter,
  type ListedHeldKey,
  listDeadLetters,
  listHeldKeys,
  readDeadLetter,
} from './dead-letters/list.ts'
export type { DeadLetterState } from './dead-letters/queries.ts'
export { type RequestOutcome, requestResume, requestRetryNow, requestSkip } from './dead-letters/requests.ts'
export {
  type AggregateRef,
  type DomainEvent,
  type Envelope,
  type RawJson,
  rawJson,
  type TraceContext,
} from './envelope.ts'
export {
  AdoptionError,
  CommitUnknownError,
  InvalidEventError,
  InvalidOptionError,
  MessagingError,
  type MessagingErrorCode,
  NotInTransactionError,
  PublishError,
  RolledBackError,
  SchemaMismatchError,
} from './errors.ts'
export { type Delivery, processOnce } from './inbox/process-once.ts'
export { backoffMs } from './lifecycle/backoff.ts'
export { type Clock, systemClock } from './lifecycle/clock.ts'
export { type Lasting, type LastingState, lastingState } from './lifecycle/lasting-state.ts'
export { type Logger, silentLogger } from './lifecycle/logger.ts'
export { type Running, run, type Shutdown } from './lifecycle/running.ts'
export type { Status } from './lifecycle/status.ts'
export { type AppendOptions, appendToOutbox } from './outbox/append.ts'
export { defaultTopicFor, type TopicRule } from './outbox/topic-rule.ts'
export { inTransaction, type TransactionOptions } from './outbox/transaction.ts'
export { startWakeNotifier, type WakeNotifierOptions } from './outbox/wake-notifier.ts'
export {
  type AdoptedPartitions,
  type AdoptPartitionsOptions,
  adoptPartitions,
} from './relay/adopt-partitions.ts'
export { workerLine } from './relay/line.ts'
export type { RelaySettings } from './relay/options.ts'
export { type Relay, type RelayOptions, startRelay } from './relay/relay.ts'
export type { RelayStatus } from './relay/relay-status.ts'
export type { RelayThreads } from './relay/spawn.ts'
export { type RelayWorkerOptions, runRelayWorker, type TopicOptions } from './relay/worker.ts'
export { assertSchema } from './schema/assert-schema.ts'
export { type MigrateOptions, migrate, migrateDown } from './schema/migrate.ts'
export { messagingMigrations } from './schema/migration-files.ts'
export type { PausedDestination } from './source.ts'
export { setOutboxName } from './telemetry/attributes.ts'
export { setBatchTraceRatio } from './telemetry/batch-draw.ts'
export { type OutboxGaugesOptions, startOutboxGauges } from './telemetry/outbox-gauges.ts'
export { setWaitSpans } from './telemetry/wait-span.ts'
export type { Publisher, Subscriber, TopicSpec } from './transport.ts'
