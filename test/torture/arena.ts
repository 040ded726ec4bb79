/**
 * Where the torture takes place: a Postgres, three Kafka brokers behind proxies,
 * and the service's processes, all started here and belonging to this run alone.
 */
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import knex, { type Knex } from 'knex'
import type { Kafka } from '../../src/local/kafka.ts'
import { type Postgres, startPostgres } from '../../src/local/postgres.ts'
import { installShadow } from '../../src/messaging/testing/history/shadow.ts'
import type { KafkaProxy } from '../support/proxy/kafka-proxy.ts'
import { startProxiedKafka } from '../support/proxy/proxied-kafka.ts'
import { type Service, startService } from '../support/system/service.ts'
import { createVolume, type Volume, volumeProblem } from '../support/volume.ts'
import { createSecurity, reauthenticating, requireSecured } from './security.ts'

export interface Arena extends AsyncDisposable {
  readonly dir: string
  readonly postgres: Postgres
  /** What Postgres keeps its data on; why there is none where no volume can be had. */
  readonly postgresVolume: Volume | string
  readonly kafka: Kafka
  /** One before each broker, in the order of their ids. */
  readonly proxies: readonly KafkaProxy[]
  /** The way of the torture itself, in clear. */
  readonly brokers: readonly string[]
  /** A pool of the torture's own. */
  readonly db: Knex
  readonly apis: readonly Service[]
  readonly relays: readonly Service[]
  readonly consumers: readonly Service[]
}

/** What stands in an arena. */
export interface ArenaOptions {
  /** Created when missing; everything is left there. */
  readonly dir: string
  readonly relays: number
  readonly consumers: number
  /** Whether the service reaches Kafka over TLS and SCRAM, and Postgres over TLS. */
  readonly secure: boolean
  readonly progress: (line: string) => void
}

/** Partitions of the topic at the beginning. */
const PARTITIONS = 8

/** Room for hours of load. What is not used takes none. */
const DISK_MEGABYTES = 16_384

export async function startArena({ dir, relays, consumers, secure, progress }: ArenaOptions): Promise<Arena> {
  await mkdir(dir, { recursive: true })
  await chmod(dir, 0o755)
  await using failed = new AsyncDisposableStack()
  const security = secure ? await createSecurity(join(dir, 'tls')) : null
  const postgresVolume = await diskOfPostgres(dir, failed)
  progress('starting Postgres and three brokers')
  const postgres = await startPostgres({
    dir: typeof postgresVolume === 'string' ? join(dir, 'postgres') : join(postgresVolume.dir, 'postgres'),
    ...(security ? { tls: security.postgres } : {}),
  })
  failed.defer(() => postgres.kill('SIGQUIT'))
  const proxied = await startProxiedKafka(3, security ? reauthenticating : {}, {
    dir: join(dir, 'kafka'),
    secure: security?.kafka,
  })
  failed.use(proxied)
  const { kafka, proxies } = proxied
  await refuseForeign(postgres)

  // Servers that are broken on purpose close connections; that is no news.
  const log = { warn: () => {}, error: () => {}, deprecate: () => {}, debug: () => {} }
  const db = knex({ client: 'pg', connection: postgres.url(), pool: { min: 0, max: 4 }, log })
  failed.defer(() => db.destroy())

  progress('starting the service')
  const env = {
    DATABASE_URL: postgres.url(),
    KAFKA_BROKERS: proxied.brokers.join(),
    TOPIC_PARTITIONS: String(PARTITIONS),
    TOPIC_REPLICATION: '3',
    ...security?.env(postgres.url()),
  }
  const start = async (role: 'api' | 'relay' | 'consumer', count: number) => {
    const services: Service[] = []
    for (let index = 1; index <= count; index += 1) {
      const service = await startService({ name: `${role}-${index}`, roles: [role], env, dir })
      failed.use(service)
      services.push(service)
    }
    return services
  }
  const apis = await start('api', 1)
  await Promise.all(apis.map((api) => api.until(true)))
  await installShadow(db)
  const started = { apis, relays: await start('relay', relays), consumers: await start('consumer', consumers) }
  await Promise.all(
    [...started.relays, ...started.consumers].map((service) => service.until(true, { withinMs: 120_000 })),
  )
  if (security) await requireSecured(db, proxies)
  const stack = failed.move()
  return {
    dir,
    postgres,
    postgresVolume,
    kafka,
    proxies,
    brokers: kafka.brokers,
    db,
    ...started,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

/** A disk that can be filled, or why there is none. Its file is left in `dir`; it is mounted where Postgres's account can go. */
async function diskOfPostgres(dir: string, scope: AsyncDisposableStack): Promise<Volume | string> {
  const problem = await volumeProblem()
  if (problem !== null) return problem
  const mount = await mkdtemp(join(tmpdir(), 'graphql-outbox-torture-'))
  scope.defer(() => rm(mount, { recursive: true }))
  await chmod(mount, 0o755)
  return scope.use(await createVolume({ dir, megabytes: DISK_MEGABYTES, mount, keep: true }))
}

/** All processes of the service. */
export function servicesOf({ apis, relays, consumers }: Arena): readonly Service[] {
  return [...apis, ...relays, ...consumers]
}

/** Throws unless the server that answers keeps its data where we told ours to: nobody else's is ever broken. */
async function refuseForeign({ url, dataDirectory }: Postgres): Promise<void> {
  const db = knex({ client: 'pg', connection: url(), pool: { min: 0, max: 1 } })
  try {
    const { rows } = await db.raw<{ rows: { data_directory: string }[] }>('show data_directory')
    const answered = rows[0]?.data_directory
    if (answered !== dataDirectory)
      throw new Error(`The Postgres that answers keeps its data in ${answered}: it is not ours`)
  } finally {
    await db.destroy()
  }
}
