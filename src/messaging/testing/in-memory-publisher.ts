/**
 * A publisher to the in-memory broker that keeps the rules of a real driver:
 * its batches are numbered, one of unknown outcome is repeated unchanged until
 * its delivery time is over, and whoever gives it up starts with a new
 * producer id.
 */
import { PublishError, type PublishFailureKind } from '../errors.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type {
  EventSearch,
  Publisher,
  PublishReceipt,
  RecordBatch,
  TopicDescription,
  TopicPartition,
  TopicSpec,
} from '../transport.ts'
import type { Faults } from './faults.ts'
import type { Appended, Numbering, StoredRecord } from './partition-log.ts'

const BACKOFF = { firstMs: 50, maxMs: 2_000 } as const

/** How an in-memory publisher behaves. */
export interface InMemoryPublisherOptions {
  /** Milliseconds of the broker's clock for which a batch is repeated; 0 tries once. @defaultValue 30_000 */
  readonly deliveryTimeoutMs?: number
}

/** What a publisher needs of the broker. */
export interface PublisherHost {
  readonly clock: Clock
  readonly faults: Faults
  readonly maxBatchBytes: number
  nextProducerId(): number
  append(batch: RecordBatch, numbering: Numbering): Appended | null
  describe(topic: string): TopicDescription | null
  /** A partition's records; `null` where it does not exist. */
  records(where: TopicPartition): readonly StoredRecord[] | null
  create(topic: string, spec: TopicSpec): TopicDescription
  answers(): boolean
}

interface Producer {
  readonly producerId: number
  sequence: number
}

type Attempt =
  | { readonly kind: 'stored'; readonly baseOffset: bigint }
  | {
      readonly kind: 'failed'
      readonly failure: PublishFailureKind
      readonly reason: string
      readonly maybeStored: boolean
    }

/** Makes a publisher to the broker behind `host`. */
export function createInMemoryPublisher(
  host: PublisherHost,
  { deliveryTimeoutMs = 30_000 }: InMemoryPublisherOptions = {},
): Publisher {
  const { clock } = host
  const producers = new Map<string, Producer>()
  const inFlight = new Map<string, Promise<unknown>>()
  let closed = false

  async function publish(batch: RecordBatch, { signal }: { readonly signal: AbortSignal }): Promise<PublishReceipt> {
    const place = `${batch.topic}/${batch.partition}`
    if (closed) throw new Error('The publisher is closed')
    if (inFlight.has(place)) throw new Error(`Two batches at once for ${place}: they could overtake each other`)
    if (batch.records.length === 0) return { baseOffset: -1n }
    refuseUnfit(batch, host.maxBatchBytes)
    const writing = write(batch, place, signal)
    inFlight.set(place, writing)
    try {
      return await writing
    } finally {
      inFlight.delete(place)
    }
  }

  async function write(batch: RecordBatch, place: string, signal: AbortSignal): Promise<PublishReceipt> {
    const until = clock.now() + deliveryTimeoutMs
    let producer = producers.get(place)
    if (producer === undefined) {
      producer = { producerId: host.nextProducerId(), sequence: 0 }
      producers.set(place, producer)
    }
    let maybeStored = false
    let last: { kind: PublishFailureKind; reason: string } = { kind: 'outage', reason: 'ABORTED' }
    for (let attempt = 1; !signal.aborted; attempt += 1) {
      const result = await send(batch, producer, attempt, signal)
      if (result.kind === 'stored') {
        producer.sequence += batch.records.length
        return { baseOffset: result.baseOffset }
      }
      maybeStored ||= result.maybeStored
      last = { kind: result.failure, reason: result.reason }
      if (last.kind !== 'outage' || clock.now() >= until) break
      await clock.pause(Math.min(backoffMs(BACKOFF, attempt, clock.random()), until - clock.now()), signal)
    }
    if (maybeStored) producers.delete(place)
    throw new PublishError(batch, { ...last, outcome: maybeStored ? 'unknown' : 'refused' })
  }

  async function send(
    batch: RecordBatch,
    numbering: Numbering,
    attempt: number,
    signal: AbortSignal,
  ): Promise<Attempt> {
    const fault = host.faults.decide(batch, attempt)
    switch (fault?.kind) {
      case 'refused':
        return { kind: 'failed', failure: fault.failure, reason: fault.reason, maybeStored: false }
      case 'request lost':
        return { kind: 'failed', failure: 'outage', reason: 'REQUEST_TIMED_OUT', maybeStored: true }
      case 'delayed':
        await clock.pause(fault.ms, signal)
        break
      case 'held':
        await untilAborted(fault.until, signal)
        break
      default:
        // A real request takes its time too: nothing is stored within the call.
        await Promise.resolve()
    }
    const appended = host.append(batch, numbering)
    if (appended === null) {
      return { kind: 'failed', failure: 'destination', reason: unknownPlace(batch.topic), maybeStored: false }
    }
    if (fault?.kind === 'answer lost') {
      return { kind: 'failed', failure: 'outage', reason: 'REQUEST_TIMED_OUT', maybeStored: true }
    }
    if (appended.kind === 'out of order') {
      return { kind: 'failed', failure: 'outage', reason: 'OUT_OF_ORDER_SEQUENCE_NUMBER', maybeStored: true }
    }
    return { kind: 'stored', baseOffset: appended.baseOffset }
  }

  async function findEvent(search: EventSearch, { signal }: { readonly signal: AbortSignal }): Promise<bigint | null> {
    const { topic, partition, eventId, from } = search
    const fail = (kind: PublishFailureKind, reason: string) =>
      new PublishError({ topic, partition }, { kind, outcome: 'refused', reason })
    const fault = host.faults.decide({ topic, partition, records: [] }, 1)
    if (fault?.kind === 'delayed') await clock.pause(fault.ms, signal)
    if (fault?.kind === 'refused') throw fail(fault.failure, fault.reason)
    if (fault?.kind === 'answer lost' || fault?.kind === 'request lost') throw fail('outage', 'REQUEST_TIMED_OUT')
    if (signal.aborted) throw fail('outage', 'ABORTED')
    const records = host.records({ topic, partition })
    if (records === null) throw fail('destination', unknownPlace(topic))
    return records.find(({ id, timestamp }) => id === eventId && timestamp >= from)?.offset ?? null
  }

  function unknownPlace(topic: string): string {
    return host.describe(topic) === null ? 'UNKNOWN_TOPIC_OR_PARTITION' : 'PARTITION_UNKNOWN'
  }

  return {
    deliveryTimeoutMs,
    publish,
    findEvent,
    describeTopic: async (topic) => host.describe(topic),
    createTopic: async (topic, spec) => host.create(topic, spec),
    ping: async () => {
      if (host.answers()) return
      throw new PublishError(
        { topic: 'the cluster' },
        { kind: 'outage', outcome: 'refused', reason: 'REQUEST_TIMED_OUT' },
      )
    },
    close: async () => {
      closed = true
      await Promise.allSettled(inFlight.values())
    },
  }
}

/** Resolves with `awaited`, or as soon as `signal` aborts. */
async function untilAborted(awaited: Promise<void>, signal: AbortSignal): Promise<void> {
  const { promise: aborted, resolve } = Promise.withResolvers<void>()
  if (signal.aborted) resolve()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await Promise.race([awaited, aborted])
}

function refuseUnfit(batch: RecordBatch, maxBatchBytes: number): void {
  let bytes = 0
  for (const { key, value, headers } of batch.records) {
    for (const part of [key, ...Object.values(headers), ...(Buffer.isBuffer(value) || value === null ? [] : [value])]) {
      if (typeof part === 'string' && part.isWellFormed()) bytes += Buffer.byteLength(part)
      else throw new PublishError(batch, { kind: 'record', outcome: 'refused', reason: 'INVALID_RECORD' })
    }
    if (Buffer.isBuffer(value)) bytes += value.length
  }
  if (bytes > maxBatchBytes)
    throw new PublishError(batch, { kind: 'record', outcome: 'refused', reason: 'MESSAGE_TOO_LARGE' })
}
