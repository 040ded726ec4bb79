/** Makes kafkajs clients of our options: mended, quiet, and with sockets that can be closed. */
import { Kafka, type logCreator, logLevel, type SASLOptions } from 'kafkajs'
import type { Logger } from '../lifecycle/logger.ts'
import { registerCodecs } from './codecs.ts'
import type { KafkaSasl, ResolvedKafkaOptions } from './options.ts'
import { Sockets } from './sockets.ts'

/** Milliseconds that the broker may hold a produce request while it waits for replicas. */
export const PRODUCE_TIMEOUT_MS = 3_000

/** Milliseconds after which a request without answer has failed. Above the broker's own limit, or its answer would come too late. */
const REQUEST_TIMEOUT_MS = 5_000

/** Few and short: the loops around kafkajs have a deadline, and know what may be repeated. */
export const INNER_RETRY = { retries: 2, initialRetryTime: 100, maxRetryTime: 500 } as const

/** A kafkajs client and its sockets. */
export function createClient(options: ResolvedKafkaOptions): { kafka: Kafka; sockets: Sockets } {
  registerCodecs()
  const sockets = new Sockets()
  const kafka = new Kafka({
    brokers: [...options.brokers],
    clientId: options.clientId,
    ssl: options.ssl,
    ...(options.sasl && { sasl: toKafkajs(options.sasl) }),
    connectionTimeout: options.connectionTimeoutMs,
    authenticationTimeout: REQUEST_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    enforceRequestTimeout: true,
    retry: INNER_RETRY,
    socketFactory: sockets.open as NonNullable<ConstructorParameters<typeof Kafka>[0]['socketFactory']>,
    logLevel: logLevel.WARN,
    logCreator: quietly(options.logger),
  })
  return { kafka, sockets }
}

function toKafkajs(sasl: KafkaSasl): SASLOptions {
  switch (sasl.mechanism) {
    case 'oauthbearer':
      return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: await sasl.token() }) }
    default:
      return { mechanism: sasl.mechanism, username: sasl.username, password: sasl.password } as SASLOptions
  }
}

const told = ['broker', 'clientId', 'groupId', 'topic', 'partition', 'retryCount', 'error'] as const

/**
 * kafkajs calls everything that it will retry an error. What matters is told
 * by our own loops with their reasons; its lines are for whoever debugs, and
 * only the fields named above pass, as others may hold payloads.
 */
function quietly(logger: Logger): logCreator {
  return () =>
    ({ namespace, log }) => {
      const fields = told.flatMap((field) => {
        const value: unknown = log[field]
        return typeof value === 'string' || typeof value === 'number' ? [[field, value] as const] : []
      })
      logger.debug({ client: 'kafkajs', part: namespace, ...Object.fromEntries(fields) }, log.message)
    }
}
