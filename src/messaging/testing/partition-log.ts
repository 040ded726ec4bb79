/**
 * One partition as a broker keeps it: records in offset order, and the rule by
 * which Kafka knows a repeat. It is not the content: a batch is a repeat if one
 * of the last five of its producer had the same numbers.
 */
import type { OutgoingRecord } from '../transport.ts'

/** How many batches of a producer the broker remembers. */
const REMEMBERED = 5

/** A record as it is kept. */
export interface StoredRecord {
  readonly topic: string
  readonly partition: number
  readonly offset: bigint
  /** When it was stored. */
  readonly timestamp: Date
  readonly key: string
  readonly value: Buffer | null
  readonly headers: Readonly<Record<string, string>>
  /** Header `event_id`; `null` without one. */
  readonly id: string | null
  /** Header `event_type`; `null` without one. */
  readonly type: string | null
}

/** Who sends a batch, and its numbers: the first of the batch's records has `sequence`. */
export interface Numbering {
  readonly producerId: number
  readonly sequence: number
}

/** What the broker answers. */
export type Appended =
  | { readonly kind: 'stored'; readonly baseOffset: bigint; readonly records: readonly StoredRecord[] }
  | { readonly kind: 'duplicate'; readonly baseOffset: bigint }
  | { readonly kind: 'out of order' }

interface Remembered {
  readonly sequence: number
  readonly count: number
  readonly baseOffset: bigint
}

/** The records of one partition. */
export class PartitionLog {
  readonly #where: { readonly topic: string; readonly partition: number }
  readonly #producers = new Map<number, Remembered[]>()
  readonly #waiting = new Set<() => void>()
  #records: StoredRecord[] = []
  #startOffset = 0n
  #endOffset = 0n

  constructor(topic: string, partition: number) {
    this.#where = { topic, partition }
  }

  /** The first offset that is still kept. */
  get startOffset(): bigint {
    return this.#startOffset
  }

  /** The offset of the next record. */
  get endOffset(): bigint {
    return this.#endOffset
  }

  /** Appends a batch as one, or answers as to a repeat. */
  append(records: readonly OutgoingRecord[], { producerId, sequence }: Numbering, timestamp: Date): Appended {
    const known = this.#producers.get(producerId) ?? []
    const repeat = known.find((batch) => batch.sequence === sequence && batch.count === records.length)
    if (repeat) return { kind: 'duplicate', baseOffset: repeat.baseOffset }
    const last = known.at(-1)
    if (last && sequence !== last.sequence + last.count) return { kind: 'out of order' }

    const baseOffset = this.#endOffset
    const stored = records.map((record, at) => this.#store(record, baseOffset + BigInt(at), timestamp))
    this.#records.push(...stored)
    this.#endOffset += BigInt(stored.length)
    this.#producers.set(producerId, [...known, { sequence, count: stored.length, baseOffset }].slice(-REMEMBERED))
    for (const wake of this.#waiting) wake()
    return { kind: 'stored', baseOffset, records: stored }
  }

  /** At most `limit` records from `offset` on. */
  read(offset: bigint, limit: number): readonly StoredRecord[] {
    const from = offset > this.#startOffset ? Number(offset - this.#startOffset) : 0
    return this.#records.slice(from, from + limit)
  }

  /** Deletes what is below `offset`, as retention does. */
  deleteBefore(offset: bigint): void {
    const below = offset > this.#endOffset ? this.#endOffset : offset
    if (below <= this.#startOffset) return
    this.#records = this.#records.slice(Number(below - this.#startOffset))
    this.#startOffset = below
  }

  /** Resolves once there are records from `offset` on, or `signal` aborts. */
  async reaches(offset: bigint, signal: AbortSignal): Promise<void> {
    while (this.#endOffset <= offset && !signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#waiting.add(resolve)
      signal.addEventListener('abort', () => resolve(), { once: true })
      await promise
      this.#waiting.delete(resolve)
    }
  }

  #store({ key, value, headers }: OutgoingRecord, offset: bigint, timestamp: Date): StoredRecord {
    return {
      ...this.#where,
      offset,
      timestamp,
      key,
      value: typeof value === 'string' ? Buffer.from(value) : value,
      headers: { ...headers },
      id: headers.event_id ?? null,
      type: headers.event_type ?? null,
    }
  }
}
