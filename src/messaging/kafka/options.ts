/**
 * How a Kafka cluster is reached, and what of it is refused before anything
 * runs: no option here makes a connection weaker than it looks.
 */
import type { ConnectionOptions } from 'node:tls'
import { InvalidOptionError } from '../errors.ts'
import { type Logger, silentLogger } from '../lifecycle/logger.ts'
import { requireKnown, requireLogger, requireWhole } from '../options.ts'

/** Credentials. Secrets given as functions are asked for at each connection, so that they can be rotated. */
export type KafkaSasl =
  | {
      readonly mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512'
      readonly username: string
      readonly password: string
    }
  | {
      readonly mechanism: 'oauthbearer'
      /** Resolves to a token that is valid now. Asked again before a session of the broker ends. */
      readonly token: () => Promise<string>
    }

/** The cluster, and how to speak to it. Shared by publisher and subscriber. */
export interface KafkaOptions {
  /** Where to begin, as `host:port`; the rest of the cluster is learned from these. At least one. */
  readonly brokers: readonly string[]
  /** What the broker's logs and quotas call this client. */
  readonly clientId: string
  /**
   * TLS. `true` trusts the system's authorities; an object is Node's own TLS
   * options. Certificates are always verified: `rejectUnauthorized: false` is
   * refused, and so is a server without TLS once this is set.
   * @defaultValue false
   */
  readonly ssl?: boolean | ConnectionOptions
  /** Credentials. `plain` and `oauthbearer` show them to whoever listens, and are refused without `ssl`. */
  readonly sasl?: KafkaSasl
  /** Milliseconds to wait for a connection to open. More tolerates far brokers; fewer notices dead ones sooner. @defaultValue 3_000 */
  readonly connectionTimeoutMs?: number
  /** Where the driver writes; never keys, values or secrets. @defaultValue silent */
  readonly logger?: Logger
}

/** {@link KafkaOptions} with nothing left open. */
export interface ResolvedKafkaOptions {
  readonly brokers: readonly string[]
  readonly clientId: string
  readonly ssl: boolean | ConnectionOptions
  readonly sasl: KafkaSasl | null
  readonly connectionTimeoutMs: number
  readonly logger: Logger
}

/** The names of {@link KafkaOptions}. */
export const kafkaOptions = {
  brokers: true,
  clientId: true,
  ssl: true,
  sasl: true,
  connectionTimeoutMs: true,
  logger: true,
} as const satisfies Record<keyof KafkaOptions, true>

/** What {@link KafkaOptions} are when not given. */
export const kafkaDefaults = { connectionTimeoutMs: 3_000 } as const

/** Fills in the defaults. Throws {@link InvalidOptionError} naming the first option it cannot use. */
export function resolveKafkaOptions(options: KafkaOptions): ResolvedKafkaOptions {
  const { brokers, clientId, ssl = false, sasl = null, logger = silentLogger } = options
  const connectionTimeoutMs = options.connectionTimeoutMs ?? kafkaDefaults.connectionTimeoutMs
  if (!Array.isArray(brokers)) throw new InvalidOptionError('brokers', brokers, 'a list of host:port')
  if (brokers.length === 0) throw new InvalidOptionError('brokers', brokers, 'at least one host:port')
  for (const broker of brokers) {
    if (!/^[^\s:]+:\d{1,5}$/.test(broker)) throw new InvalidOptionError('brokers', broker, 'host:port')
  }
  if (typeof clientId !== 'string' || clientId === '') throw new InvalidOptionError('clientId', clientId, 'a name')
  requireLogger(options.logger)
  requireWhole('connectionTimeoutMs', connectionTimeoutMs)
  if (typeof ssl !== 'boolean' && (typeof ssl !== 'object' || ssl === null)) {
    throw new InvalidOptionError('ssl', ssl, 'true, false, or the TLS options of Node')
  }
  if (typeof ssl === 'object' && ssl.rejectUnauthorized === false) {
    throw new InvalidOptionError('ssl.rejectUnauthorized', false, 'true: give the authority as ssl.ca instead')
  }
  if (sasl !== null) requireCredentials(sasl)
  if (sasl !== null && ssl === false && (sasl.mechanism === 'plain' || sasl.mechanism === 'oauthbearer')) {
    throw new InvalidOptionError('sasl.mechanism', sasl.mechanism, 'used with ssl, or it would travel in clear text')
  }
  return { brokers, clientId, ssl, sasl, connectionTimeoutMs, logger }
}

/** What plain JavaScript can leave out or misspell; a broker would only say that the login has failed. */
function requireCredentials(sasl: KafkaSasl): void {
  const { mechanism }: { readonly mechanism: string } = sasl
  const parts = mechanism === 'oauthbearer' ? { token: 'function' } : { username: 'string', password: 'string' }
  if (!['plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer'].includes(mechanism)) {
    throw new InvalidOptionError('sasl.mechanism', mechanism, 'plain, scram-sha-256, scram-sha-512 or oauthbearer')
  }
  requireKnown<object>(sasl, { mechanism: true, ...parts }, 'sasl.')
  const given: Readonly<Record<string, unknown>> = { ...sasl }
  for (const [part, type] of Object.entries(parts)) {
    if (typeof given[part] !== type || given[part] === '') {
      throw new InvalidOptionError(`sasl.${part}`, given[part], `a ${type}`, given[part] ? 'another' : 'missing')
    }
  }
}
