/** What the tests of the subscriber's contract share: a topic, a subscription with little to say, and records that count up. */
import type { ActiveSubscription, BatchOutcome, IncomingBatch, Publisher, Subscription } from '../transport.ts'
import type { ContractBroker } from './contract-harness.ts'

/** The signal of a caller with patience. */
export const never: AbortSignal = new AbortController().signal

/** A new topic of three partitions, and a publisher to write to it. */
export async function withTopic(
  broker: ContractBroker,
  unique: (name: string) => string,
): Promise<{ publisher: Publisher; topic: string }> {
  const publisher = broker.createPublisher()
  const topic = unique('contract')
  await publisher.createTopic(topic, { partitionCount: 3, replicationFactor: null })
  return { publisher, topic }
}

/** Subscribes on a connection of its own, from the first record on unless told otherwise. */
export function begin(
  broker: ContractBroker,
  subscription: Omit<Subscription, 'startOffset'> & Partial<Pick<Subscription, 'startOffset'>>,
): ActiveSubscription {
  // By itself the lower of both is the application's: it remembers nothing.
  return broker.createSubscriber().subscribe({ startOffset: async () => 'earliest', ...subscription })
}

/** Publishes the numbers `from` to `to`, one record each. */
export async function publish(
  publisher: Publisher,
  topic: string,
  partition: number,
  from: number,
  to: number,
): Promise<void> {
  const values = Array.from({ length: to - from + 1 }, (_, n) => String(from + n))
  const records = values.map((value) => ({ key: `key-${partition}`, value, headers: {} }))
  await publisher.publish({ topic, partition, records }, { signal: never })
}

/** The outcome of a batch that is finished. */
export function all(batch: IncomingBatch): BatchOutcome {
  return { nextOffset: (batch.records.at(-1)?.offset ?? 0n) + 1n, pauseMs: 0 }
}

/** A delivery that notes each value and finishes the batch. */
export function noting(seen: string[]): Subscription['deliver'] {
  return async (batch) => {
    seen.push(...batch.records.map(({ value }) => value?.toString() ?? 'null'))
    return all(batch)
  }
}

/** Resolves once `signal` has aborted. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await promise
}
