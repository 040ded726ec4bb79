/**
 * The events on their way to one topic-partition: in order, one batch in flight.
 *
 * That, and a destination's failure taking everything out of the queue, is what
 * keeps a key's events in order: event n+1 travels behind n in the same batch,
 * or after n is acknowledged.
 */
import type { OutboxEvent } from '../envelope.ts'
import { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import { ATTR_DESTINATION, ATTR_OUTBOX, outboxName } from '../telemetry/attributes.ts'
import { startBatchSend } from '../telemetry/batch-span.ts'
import { measureSend } from '../telemetry/measure.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { type OpenSpan, startSend } from '../telemetry/tracing.ts'
import type { OutgoingRecord, Publisher, TopicPartition } from '../transport.ts'
import type { HandEvent } from './hand.ts'
import { toRecord } from './record.ts'

export interface PartitionQueueOptions {
  readonly publisher: Publisher
  readonly clock: Clock
  /** Events of one record batch at most. */
  readonly batchSize: number
  /** Bytes of one record batch at most. */
  readonly maxBatchBytes: number
  /** Gives up waiting for answers. */
  readonly cancelled: AbortSignal
  /** Resolves once the leases are certain to stand, or the worker is cancelled: no send begins before. */
  readonly certain: () => Promise<void>
  /** Whether an event is still to be sent: in hand, and its key not held. One that is not wanted is forgotten. */
  readonly wanted: (taken: HandEvent) => boolean
  readonly onPublished: (events: readonly HandEvent[], where: TopicPartition) => void
  /** A send of these events has ended, and nobody knows whether the broker has them. */
  readonly onUnknown: (events: readonly OutboxEvent[]) => void
  /** The broker refused this very event. */
  readonly onRefused: (taken: HandEvent, error: PublishError) => void
  /** The destination failed: none of `events` was settled, and the queue is empty. */
  readonly onFailed: (events: readonly HandEvent[], error: PublishError) => void
}

/** What the spans of a send say of it. */
interface TracedAttempt {
  /** Counts from 1. */
  readonly attempt: number
  /** Whether somebody has asked for it: then it begins a trace of its own. */
  readonly isReplay: boolean
}

/** A destination's failure, and what of the batch it left unsettled. */
interface Failure {
  readonly error: PublishError
  readonly unsettled: readonly HandEvent[]
}

export class PartitionQueue {
  /** Where the events go. */
  readonly where: TopicPartition
  readonly #options: PartitionQueueOptions
  #waiting: HandEvent[] = []
  /** Resolves when the last send that has a turn so far has ended. */
  #lastTurn: Promise<void> = Promise.resolve()
  #draining: Promise<void> | null = null
  /** Sends that have a turn and have not ended. */
  #turns = 0
  /** Sends in a row that the destination has failed; an attempt's number is one more. */
  #failures = 0
  /** When the batch in flight was sent, on the relay's clock; `null` when none is. */
  sentAt: number | null = null
  /** The batch in flight, and what its answer decides about. */
  #inFlight: readonly HandEvent[] = []

  constructor(where: TopicPartition, options: PartitionQueueOptions) {
    this.where = where
    this.#options = options
  }

  push(taken: HandEvent): void {
    this.#waiting.push(taken)
  }

  /** Starts sending unless that goes on already. */
  start(): void {
    if (this.#draining !== null || this.#waiting.length === 0 || this.#options.cancelled.aborted) return
    this.#draining = this.#drain().finally(() => {
      this.#draining = null
      // For what was pushed between the last look and this line.
      this.start()
    })
  }

  /**
   * Sends `events` by themselves, between two batches: the way of a held key's
   * events, which were not read as pending. `wanted` is asked when it is their
   * turn. Resolves to the failure, if any; `unwanted` when they were not sent.
   */
  async sendApart(
    events: readonly OutboxEvent[],
    { wanted, ...traced }: TracedAttempt & { readonly wanted: () => boolean },
  ): Promise<PublishError | 'unwanted' | null> {
    const { certain, cancelled } = this.#options
    return await this.#inTurn(async () => {
      await certain()
      return wanted() && !cancelled.aborted ? await this.#send(events, traced) : 'unwanted'
    })
  }

  /** Whether nothing waits and nothing is on its way. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#draining === null && this.#turns === 0
  }

  /** How much is in flight. */
  get load(): { readonly count: number; readonly bytes: number } {
    return { count: this.#inFlight.length, bytes: this.#inFlight.reduce((sum, { bytes }) => sum + bytes, 0) }
  }

  /** Empties the queue of what is not in flight; returns it. */
  clear(): readonly HandEvent[] {
    return this.#waiting.splice(0)
  }

  /** Resolves once nothing is in flight. */
  async idle(): Promise<void> {
    let last: Promise<void>
    do {
      last = this.#lastTurn
      await last
      await this.#draining
    } while (last !== this.#lastTurn || this.#draining !== null)
  }

  /** Never rejects. */
  async #drain(): Promise<void> {
    while (this.#waiting.length > 0 && !this.#options.cancelled.aborted) {
      await this.#inTurn(() => this.#sendNext())
    }
  }

  /**
   * Runs `send` after all that were here before it. One batch is one turn, so
   * that neither a backlog keeps held keys waiting nor many of those a backlog.
   */
  async #inTurn<Result>(send: () => Promise<Result>): Promise<Result> {
    const before = this.#lastTurn
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#lastTurn = promise
    this.#turns += 1
    await before
    try {
      return await send()
    } finally {
      this.#turns -= 1
      resolve()
    }
  }

  async #sendNext(): Promise<void> {
    const batch = this.#nextBatch()
    this.#inFlight = batch
    // Whatever goes wrong on the way, none of it is taken for published.
    const failure = await this.#settle(batch).catch((error: unknown) => ({
      error: asPublishError(error, this.where),
      unsettled: batch,
    }))
    this.#inFlight = []
    if (failure !== null) this.#options.onFailed([...failure.unsettled, ...this.clear()], failure.error)
  }

  #nextBatch(): HandEvent[] {
    const { batchSize, maxBatchBytes } = this.#options
    let bytes = 0
    let end = 0
    for (const taken of this.#waiting) {
      bytes += taken.bytes
      if (end > 0 && (bytes > maxBatchBytes || end >= batchSize)) break
      end += 1
    }
    return this.#waiting.splice(0, end)
  }

  /**
   * Sends a batch and deals with the answer. A batch that the broker refuses as
   * invalid is halved until the culprit is alone; by then the events behind it
   * of the same key are not wanted any more, and stay out of the second half.
   */
  async #settle(given: readonly HandEvent[], attempt = this.#failures + 1): Promise<Failure | null> {
    const { certain, cancelled, wanted, onPublished, onRefused } = this.#options
    await certain()
    const batch = given.filter(wanted)
    const [first] = batch
    if (first === undefined || cancelled.aborted) return null
    const events = batch.map(({ event }) => event)
    const error = await this.#send(events, { attempt, isReplay: false })
    if (error === null) {
      onPublished(batch, this.where)
      return null
    }
    if (error.kind !== 'record' || error.outcome !== 'refused') return { error, unsettled: batch }
    if (batch.length === 1) {
      onRefused(first, error)
      return null
    }
    const middle = Math.ceil(batch.length / 2)
    const rest = batch.slice(middle)
    const failure = await this.#settle(batch.slice(0, middle), attempt + 1)
    if (failure !== null) return { error: failure.error, unsettled: [...failure.unsettled, ...rest] }
    return await this.#settle(rest, attempt + 1)
  }

  async #send(events: readonly OutboxEvent[], { attempt, isReplay }: TracedAttempt): Promise<PublishError | null> {
    const { clock } = this.#options
    const { topic, partition } = this.where
    const batch = startBatchSend(events, { topic, partition, attempt })
    const spans = events.map((event) => startSend(event, { topic, partition, attempt, isReplay, batch: batch.context }))
    const startedAt = performance.now()
    this.sentAt = clock.now()
    const failure = await this.#publish(events, spans).then(
      () => null,
      (error: unknown) => asPublishError(error, this.where),
    )
    this.sentAt = null
    if (failure?.outcome === 'unknown') this.#options.onUnknown(events)
    // A record that is refused says nothing of the destination, and the events behind it are sent for the first time.
    this.#failures = failure === null || failure.kind === 'record' ? 0 : this.#failures + 1
    for (const span of spans) span.end(failure ?? undefined)
    batch.end(failure ?? undefined)
    measureSend({ topic, count: events.length, seconds: (performance.now() - startedAt) / 1_000, failure })
    measure(events, this.where, failure)
    return failure
  }

  async #publish(events: readonly OutboxEvent[], spans: readonly OpenSpan[]): Promise<void> {
    const { publisher, cancelled } = this.#options
    const { topic } = this.where
    let records: readonly OutgoingRecord[]
    try {
      records = events.map((event, index) => toRecord(event, topic, spans[index]?.trace ?? null))
    } catch (cause) {
      // A row that nobody's code has written: it is found like one that the broker refuses.
      throw new PublishError(this.where, { kind: 'record', outcome: 'refused', reason: 'CANNOT_BE_ENCODED', cause })
    }
    await publisher.publish({ ...this.where, records }, { signal: cancelled })
  }
}

function measure(events: readonly OutboxEvent[], { topic }: TopicPartition, failure: PublishError | null): void {
  const instruments = getInstruments()
  const attributes = { [ATTR_OUTBOX]: outboxName(), [ATTR_DESTINATION]: topic }
  instruments.batchSize.record(events.length, { [ATTR_OUTBOX]: outboxName() })
  if (failure !== null) return
  const now = Date.now()
  for (const event of events) instruments.publishDelay.record(ageSeconds(event, now), attributes)
}

/** Clocks of two machines differ; a negative age is none. */
function ageSeconds(event: OutboxEvent, now: number): number {
  return Math.max(0, (now - event.createdAt.getTime()) / 1000)
}

/** Whatever a driver throws that it should not: nothing is known of the batch, so it is an outage of unknown outcome. */
function asPublishError(error: unknown, where: TopicPartition): PublishError {
  if (error instanceof PublishError) return error
  const reason = error instanceof Error ? error.name : 'unexpected failure'
  return new PublishError(where, { kind: 'outage', outcome: 'unknown', reason, cause: error })
}
