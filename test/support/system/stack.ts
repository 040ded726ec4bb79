/** A Postgres and a Kafka that belong to one test file alone: it may break them, or give each of its tests a database of its own. */
import { randomUUID } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import knex, { type Knex } from 'knex'
import { type Kafka, startKafka } from '../../../src/local/kafka.ts'
import { type Postgres, type PostgresOptions, startPostgres } from '../../../src/local/postgres.ts'

export interface SystemStack extends AsyncDisposable {
  readonly dir: string
  readonly postgres: Postgres
  readonly kafka: Kafka
  /** A pool of the test's own, on the service's database. */
  readonly db: Knex
  /** What every process of the service is told. */
  readonly env: Readonly<Record<string, string>>
  /** The same for a test that shares the servers with others: a new database, topics with a prefix of their own, and no trace of a batch. */
  freshEnv(): Promise<Record<string, string>>
}

export interface SystemStackOptions {
  /** Kafka brokers; three have a controller beside them. @defaultValue 1 */
  readonly brokers?: 1 | 3
  /** Whether a killed Postgres loses no commit that it has acknowledged; without, everything is faster. @defaultValue true */
  readonly durable?: boolean
  /** Where Postgres keeps its data, and what it is started with besides. @defaultValue below the stack's own folder */
  readonly postgres?: Partial<Pick<PostgresOptions, 'dir' | 'settings' | 'env'>>
}

/** Starts both on free ports. */
export async function startSystemStack({
  brokers = 1,
  durable = true,
  postgres: given,
}: SystemStackOptions = {}): Promise<SystemStack> {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-system-'))
  // Where we are root, Postgres runs under another account and has to pass through.
  await chmod(dir, 0o755)
  await using failed = new AsyncDisposableStack()
  failed.defer(() => rm(dir, { recursive: true, force: true }))
  const starting = [
    startPostgres({ dir: join(dir, 'postgres'), durable, ...given }).then((server) =>
      failed.adopt(server, () => server.kill('SIGQUIT')),
    ),
    startKafka({ dir: join(dir, 'kafka'), nodes: brokers, heapMb: 384, jvm: ['-XX:TieredStopAtLevel=1'] }).then(
      (server) => failed.adopt(server, () => server.kill()),
    ),
  ] as const
  // Where one fails, the other is waited for and ended: nobody else would do it.
  await Promise.allSettled(starting)
  const [postgres, kafka] = await Promise.all(starting)
  // A server that is broken on purpose closes idle connections; that is no news.
  const log = { warn: () => {}, error: () => {}, deprecate: () => {}, debug: () => {} }
  const db = knex({ client: 'pg', connection: postgres.url(), pool: { min: 0, max: 4 }, log })
  failed.defer(() => db.destroy())
  const stack = failed.move()
  const env = { DATABASE_URL: postgres.url(), KAFKA_BROKERS: kafka.brokers.join() }

  return {
    dir,
    postgres,
    kafka,
    db,
    env,
    async freshEnv() {
      const name = `test_${randomUUID().slice(0, 8)}`
      await db.raw('create database ??', [name])
      const url = new URL(postgres.url())
      url.pathname = `/${name}`
      return {
        ...env,
        DATABASE_URL: url.href,
        TOPIC_PREFIX: `${name}.`,
        // Tests of batches set it to 1; in all others one in a thousand would be one too many.
        OUTBOX_TRACES_BATCH_RATIO: '0',
      }
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}
