/** What a consumer knows of its own state, for readiness: what rests, and why. */
import type { TopicPartition } from '../transport.ts'
import type { EventDelivery } from './decode.ts'

/** An event that holds its partition until the next attempt. */
export interface HoldingEvent extends TopicPartition {
  readonly offset: number
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly attempts: number
  /** The last error's code or class, and where in the application's code it was thrown: `TypeError at orders/summary.ts:12:5`. */
  readonly reason: string
}

/** A partition whose database is away. */
export interface Outage extends TopicPartition {
  /** Failed tries in a row; counts from 1. */
  readonly tries: number
  readonly reason: string
}

/** Written by the deliveries, read by `status()`. */
export class Board {
  readonly #holding = new Map<string, HoldingEvent>()
  readonly #outages = new Map<string, Outage>()
  /** Keys parked for this consumer, by whichever instance, as last read. */
  parkedCount = 0
  /** Whether dead letters wait to be published and no relay runs on this database, as last read. */
  unrelayed = false
  /** What of the operators' requests cannot be carried out and why, as a sentence; `null` when all can. */
  requestsProblem: string | null = null

  /** The events that hold their partitions. */
  get holding(): readonly HoldingEvent[] {
    return [...this.#holding.values()]
  }

  get outages(): readonly Outage[] {
    return [...this.#outages.values()]
  }

  /** What holds this partition; `null` when nothing does. */
  holdingAt(where: TopicPartition): HoldingEvent | null {
    return this.#holding.get(placeOf(where)) ?? null
  }

  /** An event's attempt has failed and its partition waits. */
  hold(delivery: EventDelivery, attempts: number, reason: string): void {
    const { envelope, where, record } = delivery
    this.#holding.set(placeOf(where), {
      ...where,
      offset: Number(record.offset),
      eventId: envelope.id,
      eventType: envelope.type,
      aggregateType: envelope.aggregate.type,
      aggregateId: envelope.aggregate.id,
      attempts,
      reason,
    })
  }

  /** Nothing holds this partition any longer. */
  release(where: TopicPartition): void {
    this.#holding.delete(placeOf(where))
  }

  /** The database did not answer, or not as it should; resolves to the failed tries in a row. */
  outage(where: TopicPartition, reason: string): number {
    const tries = (this.#outages.get(placeOf(where))?.tries ?? 0) + 1
    this.#outages.set(placeOf(where), { ...where, tries, reason })
    return tries
  }

  /** The database answers again. */
  recovered(where: TopicPartition): void {
    this.#outages.delete(placeOf(where))
  }

  /** Forgets partitions that are no longer ours. */
  keepOnly(assigned: readonly TopicPartition[]): void {
    const places = new Set(assigned.map(placeOf))
    for (const map of [this.#holding, this.#outages]) {
      for (const place of map.keys()) if (!places.has(place)) map.delete(place)
    }
  }
}

/** A topic-partition as a map's key. */
export function placeOf({ topic, partition }: TopicPartition): string {
  return `${topic}/${partition}`
}
