/**
 * Settles what the broker has accepted: in large statements, one at a time,
 * while the next events are already being read and sent.
 *
 * A crash before a settlement publishes the events again with the same ids. A
 * failing database is waited out: the events stay in hand, so they are not read
 * a second time.
 */
import type { Ownership, RelaySource } from '../source.ts'
import { ATTR_DESTINATION, ATTR_OUTBOX, outboxName } from '../telemetry/attributes.ts'
import { traceMark } from '../telemetry/batch-span.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { TopicPartition } from '../transport.ts'
import type { Chores } from './chores.ts'
import type { Hand, HandEvent } from './hand.ts'

/** Events of one settling statement at most. */
const SETTLE_COUNT = 5_000

export interface SettlerOptions {
  readonly source: RelaySource
  readonly hand: Hand
  readonly chores: Chores
  readonly cancelled: AbortSignal
  /** Room was made, or lanes were found lost. */
  readonly onSettled: (ownership: Ownership, fencedLanes: readonly number[]) => void
}

export class Settler {
  readonly #options: SettlerOptions
  #accepted: HandEvent[] = []
  #settling: Promise<void> | null = null
  /** How many events this worker has published and marked. */
  publishedCount = 0

  constructor(options: SettlerOptions) {
    this.#options = options
  }

  /** Takes over events that the broker has accepted at `where`. */
  accept(events: readonly HandEvent[], where: TopicPartition): void {
    measurePublished(events.length, where)
    for (const taken of events) this.#accepted.push(taken)
    this.#start()
  }

  /** Counts events of held keys, which were settled apart. */
  countApart(count: number, where: TopicPartition): void {
    measurePublished(count, where)
    this.publishedCount += count
  }

  /** Resolves once everything accepted is settled, or given up on cancellation. */
  async idle(): Promise<void> {
    while (this.#settling !== null) await this.#settling
  }

  #start(): void {
    if (this.#settling !== null || this.#accepted.length === 0 || this.#options.cancelled.aborted) return
    this.#settling = untraced(() => this.#settleAll()).finally(() => {
      this.#settling = null
      // For what was accepted between the last look and this line.
      this.#start()
    })
  }

  async #settleAll(): Promise<void> {
    const { hand, chores, cancelled } = this.#options
    while (this.#accepted.length > 0 && !cancelled.aborted) {
      const next = this.#accepted.slice(0, SETTLE_COUNT)
      const batch = next.filter((taken) => hand.has(taken))
      try {
        if (batch.length > 0) await this.#settle(batch)
        // More may have been accepted behind them meanwhile.
        this.#accepted.splice(0, next.length)
        chores.succeeded()
      } catch (error) {
        await chores.failed(error, cancelled)
      }
    }
  }

  async #settle(batch: readonly HandEvent[]): Promise<void> {
    const { source, hand, onSettled } = this.#options
    const ownership = hand.ownership(batch.map(({ event }) => event.lane))
    const events = batch.map(({ event }) => event)
    const { changed, fencedLanes } = await traceMark(events, () => source.settle(ownership, events))
    this.publishedCount += changed
    for (const taken of batch) hand.drop(taken)
    onSettled(ownership, fencedLanes)
  }
}

function measurePublished(count: number, { topic }: TopicPartition): void {
  getInstruments().published.add(count, { [ATTR_OUTBOX]: outboxName(), [ATTR_DESTINATION]: topic })
}
