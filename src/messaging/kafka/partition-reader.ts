/**
 * Delivers one assigned partition: one batch at a time, and what is finished
 * is committed, never more.
 *
 * kafkajs fetches all partitions of a broker together and waits for the
 * slowest. So a batch that is not finished at once is taken out of that round:
 * its partition is paused, the others go on, and it comes back when it is done.
 */
import type { EachBatchPayload } from 'kafkajs'
import type { Backoff } from '../lifecycle/backoff.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import { lastingState } from '../lifecycle/lasting-state.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { errorType } from '../telemetry/attributes.ts'
import type { BatchOutcome, IncomingRecord, Subscription, TopicPartition } from '../transport.ts'
import { toIncomingRecord } from './incoming-record.ts'

/** Milliseconds that a batch may take within a fetch round before its partition leaves the round. */
const IN_ROUND_MS = 100

/** Milliseconds before a batch is delivered again after `deliver` has rejected, which it should not do. */
const REJECTED_PAUSE_MS = 1_000

const OPEN_BACKOFF: Backoff = { firstMs: 200, maxMs: 5_000 }

/** What a reader needs of the membership that it belongs to. */
export interface ReaderHost {
  readonly subscription: Subscription
  readonly clock: Clock
  readonly logger: Logger
  /** What the group has committed; `null` if nothing. */
  committed(where: TopicPartition): Promise<bigint | null>
  /** The first offset that the broker has, or the next to be written. */
  edge(where: TopicPartition, edge: 'start' | 'end'): Promise<bigint>
  pause(where: TopicPartition): void
  resume(where: TopicPartition): void
  seek(where: TopicPartition, offset: bigint): void
  finished(reader: PartitionReader, offset: bigint): void
}

type Phase = 'opening' | 'ready' | 'busy' | 'resting' | 'ended'

/** One partition, from its assignment to its revocation. */
export class PartitionReader {
  readonly where: TopicPartition
  readonly #host: ReaderHost
  readonly #ending = new AbortController()
  #phase: Phase = 'opening'
  #problem: string | null = null
  /** Deliveries that throw, until one does not. */
  readonly #throwing = lastingState()
  #begun = false
  #nextOffset = 0n
  #endOffset = 0n
  #progressAt: number
  #work: Promise<void>

  /** Begins as soon as `previous`, the last delivery of this partition, is over. The partition must be paused. */
  constructor(where: TopicPartition, host: ReaderHost, previous: Promise<void>) {
    this.where = where
    this.#host = host
    this.#progressAt = host.clock.now()
    this.#work = previous.then(() => this.#open())
  }

  /** Why it cannot begin or be delivered, as a sentence; `null` if nothing is wrong. */
  get problem(): string | null {
    return this.#problem
  }

  /** Whether it knows where it begins and ends; before that its offsets say nothing. */
  get begun(): boolean {
    return this.#begun
  }

  get nextOffset(): bigint {
    return this.#nextOffset
  }

  get endOffset(): bigint {
    return this.#endOffset
  }

  /** Settles when nothing of this partition is in hand. Never rejects. */
  get settled(): Promise<void> {
    return this.#work
  }

  /** Milliseconds for which records wait that the client does not bring; 0 while all is well or the work is ours. */
  stalledMs(): number {
    if (this.#phase !== 'ready' || this.#endOffset <= this.#nextOffset) return 0
    return this.#host.clock.now() - this.#progressAt
  }

  /** The broker has told where the partition ends. */
  heardEnd(offset: bigint): void {
    if (this.#endOffset <= this.#nextOffset) this.#progressAt = this.#host.clock.now()
    this.#endOffset = offset
  }

  /** Ends deliveries: `signal` of the batch in hand aborts, and nothing follows. What that batch still finishes counts. */
  end(): void {
    this.#phase = 'ended'
    this.#ending.abort()
  }

  /** A batch without any record for us has passed: of aborted transactions, or emptied by compaction. */
  passed(lastOffset: bigint): void {
    if (this.#phase !== 'ready' || lastOffset < this.#nextOffset) return
    this.#advance(lastOffset + 1n)
  }

  /** Takes a fetched batch. Resolves when kafkajs may fetch again; never rejects. */
  async take(payload: EachBatchPayload): Promise<void> {
    // Fetched before a pause or a seek: it will be fetched again.
    if (this.#phase !== 'ready' || payload.isStale()) return
    const { fetchedOffset } = payload.batch as unknown as { fetchedOffset: string | number }
    if (BigInt(fetchedOffset) !== this.#nextOffset) {
      // kafkajs has moved by itself, as after an offset out of range.
      this.#reopen()
      return
    }
    const released = Promise.withResolvers<void>()
    this.#phase = 'busy'
    this.#work = this.#deliver(payload, released.resolve)
    const round = new AbortController()
    void released.promise.then(() => {
      round.abort()
    })
    await this.#host.clock.pause(IN_ROUND_MS, round.signal)
    if (this.#isBusy()) this.#host.pause(this.where)
  }

  /** Not narrowed by the compiler: the phase changes while others run. */
  #isBusy(): boolean {
    return this.#phase === 'busy'
  }

  async #deliver(payload: EachBatchPayload, release: () => void): Promise<void> {
    const records = payload.batch.messages.map(toIncomingRecord)
    this.#endOffset = BigInt(payload.batch.highWatermark)
    const { nextOffset, pauseMs } = await this.#outcome(records, payload)

    const lastRecord = records.at(-1)
    // Behind the last record there may be control records, which nobody delivers.
    const all = lastRecord !== undefined && nextOffset > lastRecord.offset
    const next = all ? BigInt(payload.batch.lastOffset()) + 1n : nextOffset
    if (next > this.#nextOffset) this.#advance(next)
    if (this.#phase !== 'ended' && pauseMs > 0) {
      this.#phase = 'resting'
      this.#host.pause(this.where)
      release()
      await this.#host.clock.pause(pauseMs, this.#ending.signal)
    }
    if (!this.#hasEnded()) {
      this.#phase = 'ready'
      this.#progressAt = this.#host.clock.now()
      this.#host.seek(this.where, this.#nextOffset)
      this.#host.resume(this.where)
    }
    release()
  }

  #hasEnded(): boolean {
    return this.#phase === 'ended'
  }

  async #outcome(records: readonly IncomingRecord[], { heartbeat }: EachBatchPayload): Promise<BatchOutcome> {
    const first = records[0]?.offset ?? this.#nextOffset
    const beyond = (records.at(-1)?.offset ?? first) + 1n
    try {
      const outcome = await this.#host.subscription.deliver({
        ...this.where,
        records,
        endOffset: this.#endOffset,
        // A failing one shows in kafkajs's own round, which knows what to do.
        heartbeat: () => heartbeat().catch(() => {}),
        signal: this.#ending.signal,
      })
      if (outcome.nextOffset >= first && outcome.nextOffset <= beyond) {
        this.#problem = null
        this.#throwing.ends((lasting) =>
          this.#host.logger.info({ ...this.where, ...lasting }, 'Deliveries do not fail any more'),
        )
        return outcome
      }
      throw new RangeError(`The next offset ${outcome.nextOffset} is outside the batch, ${first} to ${beyond}`)
    } catch (error) {
      const { topic, partition } = this.where
      this.#problem = `${topic}, partition ${partition} cannot be delivered: ${errorType(error)}`
      this.#throwing.holds(({ times }) =>
        this.#host.logger.error(
          { ...this.where, times, err: error },
          'A delivery failed; the batch is delivered again',
        ),
      )
      return { nextOffset: first, pauseMs: REJECTED_PAUSE_MS }
    }
  }

  #advance(next: bigint): void {
    this.#nextOffset = next
    this.#progressAt = this.#host.clock.now()
    this.#host.finished(this, next)
  }

  #reopen(): void {
    this.#phase = 'opening'
    this.#host.pause(this.where)
    this.#work = this.#open()
  }

  async #open(): Promise<void> {
    for (let attempt = 1; !this.#ending.signal.aborted; attempt += 1) {
      try {
        const { next, end } = await this.#start()
        this.#problem = null
        if (this.#hasEnded()) return
        this.#nextOffset = next
        this.#endOffset = end
        this.#begun = true
        this.#progressAt = this.#host.clock.now()
        this.#phase = 'ready'
        this.#host.seek(this.where, next)
        this.#host.resume(this.where)
        return
      } catch (error) {
        const { topic, partition } = this.where
        this.#problem = `${topic}, partition ${partition} cannot begin: ${error instanceof Error ? error.message : error}`
        await this.#host.clock.pause(backoffMs(OPEN_BACKOFF, attempt, this.#host.clock.random()), this.#ending.signal)
      }
    }
  }

  /**
   * The lower of what the application and the group remember, within what the
   * broker has. A group that remembers nothing begins at the start: its topic may
   * have been made anew, and have more in it by now than the one before.
   */
  async #start(): Promise<{ next: bigint; end: bigint }> {
    const [committed, start, end] = await Promise.all([
      this.#host.committed(this.where),
      this.#host.edge(this.where, 'start'),
      this.#host.edge(this.where, 'end'),
    ])
    const asked = await this.#host.subscription.startOffset(this.where, end)
    const wanted = asked === 'earliest' || committed === null ? start : lowerOf(asked, committed)
    if (wanted >= start && wanted <= end) return { next: wanted, end }
    // Below: retention was faster than we. Beyond: the topic was made anew, and everything in it is new.
    this.#host.logger.warn(
      { ...this.where, wanted: String(wanted), start: String(start), end: String(end) },
      wanted < start
        ? 'Records were deleted before they were delivered'
        : 'The partition ends before what was delivered: taken for a new one',
    )
    return { next: start, end }
  }
}

function lowerOf(one: bigint, other: bigint): bigint {
  if (one < other) return one
  return other
}
