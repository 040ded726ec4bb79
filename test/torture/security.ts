/**
 * The arena's way to its servers where nothing passes in clear: Kafka over TLS
 * with SCRAM-SHA-512, Postgres over TLS verified in full, each under an authority
 * of its own, told to the service by the variables that its users set.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Knex } from 'knex'
import { createCertificate, type ServerCertificate } from '../../src/local/certificates.ts'
import type { SecureOptions } from '../../src/local/kafka.ts'
import { api } from '../support/proxy/frames.ts'
import type { KafkaProxy } from '../support/proxy/kafka-proxy.ts'

export interface Security {
  readonly kafka: SecureOptions
  readonly postgres: ServerCertificate
  /** The service's variables. `url` is Postgres's, as it is without TLS. */
  env(url: string): Readonly<Record<string, string>>
}

/** Of Kafka's brokers: authentications end with it, so a run of minutes sees them renewed. */
export const reauthenticating = { 'connections.max.reauth.ms': 45_000 }

/** Makes authorities, certificates and a password in `dir`. */
export async function createSecurity(dir: string): Promise<Security> {
  const [kafka, postgres] = await Promise.all([
    createCertificate(join(dir, 'kafka')),
    createCertificate(join(dir, 'postgres')),
  ])
  const username = 'torture'
  const password = crypto.randomUUID()
  const files = { KAFKA_CA: join(dir, 'kafka', 'ca.pem'), KAFKA_SASL_PASSWORD_FILE: join(dir, 'kafka', 'password') }
  await writeFile(files.KAFKA_SASL_PASSWORD_FILE, `${password}\n`, { mode: 0o600 })
  return {
    kafka: { certificate: kafka, username, password },
    postgres,
    env(url) {
      const verified = new URL(url)
      verified.searchParams.set('sslmode', 'verify-full')
      verified.searchParams.set('sslrootcert', join(dir, 'postgres', 'ca.pem'))
      return {
        DATABASE_URL: verified.href,
        KAFKA_TLS: 'true',
        KAFKA_SASL_MECHANISM: 'scram-sha-512',
        KAFKA_SASL_USERNAME: username,
        ...files,
      }
    },
  }
}

/** Authentications that `proxies` have let through, renewed ones among them. */
export function countAuthentications(proxies: readonly KafkaProxy[]): number {
  return proxies.reduce((sum, proxy) => sum + proxy.count(api.saslHandshake), 0)
}

/** Throws where a process of the service has a connection to Postgres in clear, or has not authenticated at Kafka. */
export async function requireSecured(db: Knex, proxies: readonly KafkaProxy[]): Promise<void> {
  const { rows } = await db.raw<{ rows: { all: number; secured: number }[] }>(
    `select count(*)::integer as all,
            count(*) filter (where ssl)::integer as secured
       from pg_stat_ssl
       join pg_stat_activity using (pid)
      where datname = current_database()
        and application_name <> ''`,
  )
  const [{ all, secured } = { all: 0, secured: 0 }] = rows
  if (all === 0 || secured < all) throw new Error(`${secured} of ${all} connections to Postgres are over TLS`)
  if (countAuthentications(proxies) === 0) throw new Error('Nobody has authenticated at Kafka')
}
