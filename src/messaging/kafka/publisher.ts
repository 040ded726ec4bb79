/**
 * The Kafka publisher: a writer for each topic-partition, made at its first
 * batch, and the topics' administration beside them.
 */
import { PublishError } from '../errors.ts'
import { systemClock } from '../lifecycle/clock.ts'
import type { EventSearch, Publisher, PublishReceipt, RecordBatch } from '../transport.ts'
import { checkRecords } from './checked-records.ts'
import { findEvent } from './event-search.ts'
import { DriverFailure, understand } from './failures.ts'
import { PartitionWriter } from './partition-writer.ts'
import {
  type KafkaPublisherOptions,
  type ResolvedPublisherOptions,
  resolvePublisherOptions,
} from './publisher-options.ts'
import { Topics } from './topics.ts'

/** Less than half of a broker's `connections.max.idle.ms`, or the first event after a quiet time meets a closed socket. */
const TOUCH_MS = 240_000

/** What an empty batch is answered with: no record, so no offset. */
const NOWHERE: PublishReceipt = { baseOffset: -1n }

/**
 * Makes a publisher for the cluster in `options`. Connects at the first use.
 * Throws {@link InvalidOptionError} if an option cannot be used.
 */
export function createKafkaPublisher(options: KafkaPublisherOptions): Publisher {
  return createPublisher(resolvePublisherOptions(options))
}

/** The same with everything decided, also what is no option. */
export function createPublisher(resolved: ResolvedPublisherOptions): Publisher {
  const topics = new Topics(resolved, systemClock)
  const writers = new Map<string, PartitionWriter>()
  const inFlight = new Map<string, Promise<unknown>>()
  const searches = new Set<Promise<unknown>>()
  const closing = new AbortController()
  const touching = keepAlive(() => [topics, ...writers.values()], closing.signal)

  async function publish(batch: RecordBatch, { signal }: { readonly signal: AbortSignal }): Promise<PublishReceipt> {
    const place = `${batch.topic}/${batch.partition}`
    if (closing.signal.aborted) throw new Error('The publisher is closed')
    if (inFlight.has(place)) throw new Error(`Two batches at once for ${place}: they could overtake each other`)
    if (batch.records.length === 0) return NOWHERE
    const messages = check(batch, resolved)

    let writer = writers.get(place)
    if (writer === undefined) {
      writer = new PartitionWriter(batch, resolved, systemClock)
      writers.set(place, writer)
    }
    const writing = writer.write(messages, signal)
    inFlight.set(place, writing)
    try {
      return await writing
    } finally {
      inFlight.delete(place)
    }
  }

  async function find(search: EventSearch, { signal }: { readonly signal: AbortSignal }): Promise<bigint | null> {
    const either = AbortSignal.any([signal, closing.signal])
    const searching = findEvent(search, { options: resolved, clock: systemClock, signal: either })
    searches.add(searching)
    try {
      return await searching
    } finally {
      searches.delete(searching)
    }
  }

  async function closeOnce(): Promise<void> {
    closing.abort()
    await Promise.allSettled([...inFlight.values(), ...searches])
    await Promise.all([touching, topics.close(), ...[...writers.values()].map((writer) => writer.close())])
  }

  let closed: Promise<void> | undefined
  return {
    deliveryTimeoutMs: resolved.deliveryTimeoutMs,
    publish,
    findEvent: find,
    describeTopic: (topic) => topics.describe(topic),
    createTopic: (topic, spec) => topics.create(topic, spec),
    ping: () => topics.ping(),
    close: () => {
      closed ??= closeOnce()
      return closed
    },
  }
}

function check(batch: RecordBatch, { maxRequestBytes }: ResolvedPublisherOptions) {
  try {
    const { messages, bytes } = checkRecords(batch.records, batch.partition, Date.now())
    if (bytes <= maxRequestBytes) return messages
    throw new DriverFailure('record', 'MESSAGE_TOO_LARGE', `A batch of ${bytes} bytes is above ${maxRequestBytes}`)
  } catch (error) {
    const { kind, reason, cause } = understand(error)
    throw new PublishError(batch, { kind, outcome: 'refused', reason, cause })
  }
}

async function keepAlive(parts: () => readonly { touch(): Promise<void> }[], signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await systemClock.pause(TOUCH_MS, signal)
    if (!signal.aborted) await Promise.all(parts().map((part) => part.touch()))
  }
}
