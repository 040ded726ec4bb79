/**
 * What a failure at Kafka means: who waits for it (outage, destination,
 * record), whether the broker certainly did not store the batch, and whether
 * the producer can be used again.
 */
import type { PublishFailureKind } from '../errors.ts'

/** A failure of one attempt, understood. */
export interface Failure {
  readonly kind: PublishFailureKind
  /** The broker's or client's own word for it: one of a closed list, fit for a metric label. */
  readonly reason: string
  /** True if the broker's answer itself says that nothing was stored. */
  readonly definite: boolean
  /** True if this producer's numbering can no longer be trusted. */
  readonly retire: boolean
  readonly cause: unknown
}

/** A failure that we name ourselves. */
export class DriverFailure extends Error {
  readonly kind: PublishFailureKind
  readonly reason: string
  readonly definite: boolean

  constructor(kind: PublishFailureKind, reason: string, message: string, { definite = true } = {}) {
    super(message)
    this.kind = kind
    this.reason = reason
    this.definite = definite
  }
}

const definitely = { definite: true, retire: false } as const
const perhaps = { definite: false, retire: false } as const
const spoilt = { definite: false, retire: true } as const

/** Error codes of the protocol, by name. What is not listed is unclassified: an outage that ends the producer. */
const protocolErrors: Readonly<Record<string, Pick<Failure, 'kind' | 'definite' | 'retire'>>> = {
  MESSAGE_TOO_LARGE: { kind: 'record', ...definitely },
  RECORD_LIST_TOO_LARGE: { kind: 'record', ...definitely },
  INVALID_RECORD: { kind: 'record', ...definitely },

  // All records have the time of this machine: it is no event's fault when the broker does not believe it.
  INVALID_TIMESTAMP: { kind: 'destination', ...definitely },
  UNKNOWN_TOPIC_OR_PARTITION: { kind: 'destination', ...definitely },
  INVALID_TOPIC_EXCEPTION: { kind: 'destination', ...definitely },
  TOPIC_AUTHORIZATION_FAILED: { kind: 'destination', ...definitely },
  CLUSTER_AUTHORIZATION_FAILED: { kind: 'destination', ...definitely },
  POLICY_VIOLATION: { kind: 'destination', ...definitely },
  INVALID_REPLICATION_FACTOR: { kind: 'destination', ...definitely },
  INVALID_PARTITIONS: { kind: 'destination', ...definitely },
  INVALID_CONFIG: { kind: 'destination', ...definitely },
  UNSUPPORTED_VERSION: { kind: 'destination', ...definitely },
  UNSUPPORTED_FOR_MESSAGE_FORMAT: { kind: 'destination', ...definitely },
  UNSUPPORTED_COMPRESSION_TYPE: { kind: 'destination', ...definitely },

  LEADER_NOT_AVAILABLE: { kind: 'outage', ...definitely },
  FENCED_LEADER_EPOCH: { kind: 'outage', ...definitely },
  UNKNOWN_LEADER_EPOCH: { kind: 'outage', ...definitely },
  NOT_ENOUGH_REPLICAS: { kind: 'outage', ...definitely },
  BROKER_NOT_AVAILABLE: { kind: 'outage', ...definitely },
  CORRUPT_MESSAGE: { kind: 'outage', ...definitely },
  SASL_AUTHENTICATION_FAILED: { kind: 'outage', ...definitely },

  REQUEST_TIMED_OUT: { kind: 'outage', ...perhaps },
  NETWORK_EXCEPTION: { kind: 'outage', ...perhaps },
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: { kind: 'outage', ...perhaps },
  // A leader says so too that has appended a batch and lost the partition before all replicas had it: the next one may have it.
  NOT_LEADER_FOR_PARTITION: { kind: 'outage', ...perhaps },
  REPLICA_NOT_AVAILABLE: { kind: 'outage', ...perhaps },
  KAFKA_STORAGE_ERROR: { kind: 'outage', ...perhaps },

  OUT_OF_ORDER_SEQUENCE_NUMBER: { kind: 'outage', ...spoilt },
  DUPLICATE_SEQUENCE_NUMBER: { kind: 'outage', ...spoilt },
  INVALID_PRODUCER_EPOCH: { kind: 'outage', ...spoilt },
  UNKNOWN_PRODUCER_ID: { kind: 'outage', ...spoilt },
}

/** What kafkajs says of a broker that it has not connected to anew yet, in an error without a class of its own. */
const NOT_CONNECTED = 'Broker not connected'

/** kafkajs's own errors: of connections, and of what it knows of the cluster. */
const clientErrors: Readonly<Record<string, Pick<Failure, 'kind' | 'definite' | 'retire'>>> = {
  KafkaJSConnectionError: { kind: 'outage', ...perhaps },
  KafkaJSConnectionClosedError: { kind: 'outage', ...perhaps },
  KafkaJSRequestTimeoutError: { kind: 'outage', ...perhaps },
  KafkaJSBrokerNotFound: { kind: 'outage', ...perhaps },
  KafkaJSMetadataNotLoaded: { kind: 'outage', ...perhaps },
  KafkaJSTopicMetadataNotLoaded: { kind: 'outage', ...perhaps },
  KafkaJSSASLAuthenticationError: { kind: 'outage', ...perhaps },
}

/** Says what `error` means. Never throws. */
export function understand(error: unknown): Failure {
  const root = rootOf(error)
  if (root instanceof DriverFailure) {
    return { kind: root.kind, reason: root.reason, definite: root.definite, retire: !root.definite, cause: root }
  }
  const { type, name, code, message } = facts(root)
  const known = protocolErrors[type] ?? clientErrors[name]
  // A connection's own code, ECONNREFUSED or CERT_HAS_EXPIRED, says more than the class.
  const word = type || code || (message === NOT_CONNECTED ? 'NOT_CONNECTED' : name)
  const reason = /^\w{1,60}$/.test(word) ? word : 'UNCLASSIFIED'
  return { kind: 'outage', ...spoilt, ...known, reason, cause: root }
}

/** kafkajs wraps what has failed in what it did about it, and gathers what failed together; of those the first speaks for all. */
function rootOf(error: unknown): unknown {
  let root = error
  for (let depth = 0; depth < 8 && root instanceof Error; depth += 1) {
    const { errors, cause } = root as { errors?: unknown; cause?: unknown }
    const inner: unknown = Array.isArray(errors) ? errors[0] : cause
    if (!(inner instanceof Error)) break
    root = inner
  }
  return root
}

function facts(error: unknown): { type: string; name: string; code: string; message: string } {
  const text = (value: unknown) => (typeof value === 'string' ? value : '')
  if (typeof error !== 'object' || error === null) return { type: '', name: typeof error, code: '', message: '' }
  const { type, name, code, message } = error as { type?: unknown; name?: unknown; code?: unknown; message?: unknown }
  return { type: text(type), name: text(name), code: text(code), message: text(message) }
}
