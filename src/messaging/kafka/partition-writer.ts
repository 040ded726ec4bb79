/**
 * Writes batches to one topic-partition, one at a time, and never says that a
 * batch is stored unless it is.
 *
 * kafkajs hands sequence numbers back after a failure. If the broker had stored
 * the batch after all, the next one with the same count would get its numbers,
 * be taken for it, and be lost with a success. So a batch of unknown outcome is
 * sticky: nothing but the very same batch follows it on that producer. Whoever
 * gives the batch up gives up the producer too; the next one starts afresh.
 */
import type { Message } from 'kafkajs'
import { PublishError } from '../errors.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import { isOver, type Term, termOf } from '../lifecycle/term.ts'
import type { PublishReceipt, TopicPartition } from '../transport.ts'
import { Aborted, startDeadline, unlessAborted } from './deadline.ts'
import { type Failure, understand } from './failures.ts'
import { PartitionProducer } from './partition-producer.ts'
import type { ResolvedPublisherOptions } from './publisher-options.ts'

const BACKOFF = { firstMs: 50, maxMs: 2_000 } as const

/** Milliseconds for which a topic may be unknown before that is believed: news of a topic takes a moment to every broker. */
const UNKNOWN_TOPIC_MS = 2_000

type Attempt =
  | { readonly kind: 'stored'; readonly baseOffset: bigint }
  | { readonly kind: 'failed'; readonly failure: Failure; readonly maybeStored: boolean }
  | { readonly kind: 'given up'; readonly maybeStored: boolean }

/** The way to one topic-partition. */
export class PartitionWriter {
  readonly #where: TopicPartition
  readonly #options: ResolvedPublisherOptions
  readonly #clock: Clock
  #producer: { readonly it: PartitionProducer; readonly opened: Promise<void> } | null = null
  readonly #retired = new Set<Promise<void>>()

  constructor(where: TopicPartition, options: ResolvedPublisherOptions, clock: Clock) {
    this.#where = where
    this.#options = options
    this.#clock = clock
  }

  /**
   * Writes `messages` and resolves to where they are; repeats them, unchanged,
   * until the delivery time is over. Rejects with {@link PublishError}; the
   * next call may then bring what it likes.
   */
  async write(messages: readonly Message[], signal: AbortSignal): Promise<PublishReceipt> {
    using deadline = startDeadline(this.#options.deliveryTimeoutMs, signal)
    const startedAt = this.#clock.now()
    const term = termOf(this.#clock, this.#options.deliveryTimeoutMs)
    let maybeStored = false
    let last: Failure | null = null

    for (let attempt = 1; !deadline.signal.aborted && !isOver(term, this.#clock); attempt += 1) {
      const result = await this.#attempt(messages, term, deadline.signal)
      if (result.kind === 'stored') return { baseOffset: result.baseOffset }
      maybeStored ||= result.maybeStored
      if (result.kind === 'given up') break

      last = result.failure
      this.#log(last, attempt)
      if (last.retire) this.#retire()
      if (this.#isFinal(last, this.#clock.now() - startedAt)) break
      await this.#clock.pause(backoffMs(BACKOFF, attempt, this.#clock.random()), deadline.signal)
    }

    if (maybeStored) this.#retire()
    throw new PublishError(this.#where, {
      kind: last?.kind ?? 'outage',
      outcome: maybeStored ? 'unknown' : 'refused',
      reason: last?.reason ?? deadline.reason(),
      cause: last?.cause,
    })
  }

  #isFinal({ kind, reason }: Failure, elapsedMs: number): boolean {
    switch (kind) {
      case 'outage':
        return false
      case 'record':
        return true
      case 'destination':
        return reason !== 'UNKNOWN_TOPIC_OR_PARTITION' || elapsedMs >= UNKNOWN_TOPIC_MS
    }
  }

  async #attempt(messages: readonly Message[], term: Term, signal: AbortSignal): Promise<Attempt> {
    let sending: { readonly producer: PartitionProducer; readonly before: number } | null = null
    try {
      const producer = await unlessAborted(this.#open(), signal)
      sending = { producer, before: producer.doubts }
      return { kind: 'stored', baseOffset: await unlessAborted(producer.send(messages, term), signal) }
    } catch (error) {
      const maybeStored = sending !== null && sending.producer.doubts > sending.before
      if (error instanceof Aborted) {
        // The send goes on in kafkajs, retries and all, unless it is cut off.
        this.#retire()
        return { kind: 'given up', maybeStored }
      }
      return { kind: 'failed', failure: understand(error), maybeStored }
    }
  }

  async #open(): Promise<PartitionProducer> {
    if (this.#producer?.it.exhausted) this.#retire()
    if (this.#producer === null) {
      const it = new PartitionProducer(this.#where, this.#options, this.#clock)
      this.#producer = { it, opened: it.open() }
    }
    const { it, opened } = this.#producer
    try {
      await opened
      return it
    } catch (error) {
      if (this.#producer?.it === it) this.#retire()
      throw error
    }
  }

  /** Gives the producer up, and with it whatever it may still be sending. The next send makes a new one. */
  #retire(): void {
    const producer = this.#producer
    if (producer === null) return
    this.#producer = null
    producer.it.cutOff()
    const closed = producer.it.close()
    this.#retired.add(closed)
    void closed.finally(() => this.#retired.delete(closed))
  }

  #log({ kind, reason, retire }: Failure, attempt: number): void {
    const { topic, partition } = this.#where
    this.#options.logger.debug({ topic, partition, kind, reason, attempt, retire }, 'A batch was not accepted')
  }

  /** Keeps the connections alive while nothing is sent. Never rejects. */
  async touch(): Promise<void> {
    await this.#producer?.it.touch()
  }

  /** Closes the producer, and waits for those given up. Never rejects. No batch may be on its way. */
  async close(): Promise<void> {
    const producer = this.#producer
    this.#producer = null
    await Promise.all([producer?.it.close(), ...this.#retired])
  }
}
