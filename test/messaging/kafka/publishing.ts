/** What the tests of publishing under faults share. */
import { createKafkaPublisher, type KafkaPublisherOptions } from '../../../src/messaging/kafka/index.ts'
import type { Publisher, RecordBatch } from '../../../src/messaging/transport.ts'
import { api } from '../../support/proxy/frames.ts'
import type { KafkaProxy, Verdict } from '../../support/proxy/kafka-proxy.ts'
import type { Witness } from './witness.ts'

/** The signal of a caller with patience. */
export const never = new AbortController().signal

/** A publisher that closes with the scope. */
export function openPublisher(
  options: Partial<KafkaPublisherOptions> & { brokers: readonly string[] },
): Publisher & AsyncDisposable {
  const publisher = createKafkaPublisher({ clientId: 'faults', ...options })
  return { ...publisher, [Symbol.asyncDispose]: () => publisher.close() }
}

/** A batch of `count` records whose values are `name-0`, `name-1`, … */
export function batchOf(topic: string, partition: number, name: string, count: number): RecordBatch {
  const records = Array.from({ length: count }, (_, n) => ({
    key: `key-${partition}`,
    value: `${name}-${n}`,
    headers: {},
  }))
  return { topic, partition, records }
}

/** The values of `batch`. */
export function valuesOf({ records }: RecordBatch): string[] {
  return records.map(({ value }) => String(value))
}

/** The values of a partition, as the witness reads them. */
export async function valuesIn(witness: Witness, topic: string, partition: number): Promise<string[]> {
  return (await witness.read({ topic, partition })).map(({ value }) => value?.toString() ?? 'null')
}

/** The values in order of their first copies. */
export function firsts(values: readonly string[]): string[] {
  return [...new Set(values)]
}

/** Publishes until it is done, as the relay does: again after an outage. */
export async function untilStored(publish: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await publish()
      return
    } catch (error) {
      if ((error as { kind?: string }).kind !== 'outage') throw error
    }
  }
}

/** Deals with the next `count` produce requests. Resolves when the last of them has come. */
export function onProduce(proxy: KafkaProxy, verdict: Verdict, count = 1): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  let left = count
  const end = proxy.rule(({ apiKey }) => {
    if (apiKey !== api.produce) return 'pass'
    left -= 1
    if (left <= 0) {
      end()
      resolve()
    }
    return verdict
  })
  return promise
}
