/** How the Kafka publisher behaves. */
import { InvalidOptionError } from '../errors.ts'
import { requireKnown, requireWhole, withDefaults } from '../options.ts'
import { type KafkaOptions, kafkaOptions, type ResolvedKafkaOptions, resolveKafkaOptions } from './options.ts'

/** Options of the Kafka publisher. Every one beyond the cluster itself has a default. */
export interface KafkaPublisherOptions extends KafkaOptions {
  /**
   * Milliseconds for which a batch is repeated before it is given up, its
   * producer with it. More rides out longer outages without a duplicate; fewer
   * tells the caller sooner.
   * @defaultValue 30_000
   */
  readonly deliveryTimeoutMs?: number
  /**
   * Bytes of keys, values and headers above which a batch is refused unsent.
   * Far above what topics allow; a broker closes the connection on more than
   * 100 MB without an answer, which would look like an outage.
   * @defaultValue 33_554_432
   */
  readonly maxRequestBytes?: number
}

/** {@link KafkaPublisherOptions} with nothing left open. */
export interface ResolvedPublisherOptions extends ResolvedKafkaOptions {
  readonly deliveryTimeoutMs: number
  readonly maxRequestBytes: number
  /**
   * Records after which a producer is replaced: the numbering of its records has
   * 31 bits, and kafkajs gets its wrapping around wrong. Nobody but a test has a
   * reason to change it, so it is no option.
   */
  readonly maxProducerRecords: number
}

/** What {@link KafkaPublisherOptions} are when not given. */
export const publisherDefaults = {
  deliveryTimeoutMs: 30_000,
  maxRequestBytes: 33_554_432,
} as const

/** Half of what the numbering holds: one more batch always fits. */
const MAX_PRODUCER_RECORDS = 2 ** 30

/** Fills in the defaults. Throws {@link InvalidOptionError} naming the first option it cannot use. */
export function resolvePublisherOptions(options: KafkaPublisherOptions): ResolvedPublisherOptions {
  requireKnown(options, { ...kafkaOptions, ...publisherDefaults })
  const own = withDefaults<KafkaPublisherOptions, keyof typeof publisherDefaults>(options, publisherDefaults)
  const { deliveryTimeoutMs, maxRequestBytes } = own
  requireWhole('deliveryTimeoutMs', deliveryTimeoutMs)
  requireWhole('maxRequestBytes', maxRequestBytes)
  if (maxRequestBytes > 100_000_000)
    throw new InvalidOptionError('maxRequestBytes', maxRequestBytes, 'at most 100000000')
  return {
    ...resolveKafkaOptions(options),
    deliveryTimeoutMs,
    maxRequestBytes,
    maxProducerRecords: MAX_PRODUCER_RECORDS,
  }
}
