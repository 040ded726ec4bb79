/** Postgres and Kafka for the system tests of one file, each test in a database and with topics of its own. */
import { randomUUID } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import knex from 'knex'
import { startKafka } from '../../../src/local/kafka.ts'
import { startPostgres } from '../../../src/local/postgres.ts'

/** The servers, while they run. */
export interface TestStack extends AsyncDisposable {
  readonly dir: string
  /** The service's environment: a new database and a new topic prefix. */
  freshEnv(): Promise<Record<string, string>>
}

/** Starts both on free ports. */
export async function startTestStack(): Promise<TestStack> {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-system-'))
  await chmod(dir, 0o755)
  const stack = new AsyncDisposableStack()
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  const [postgres, kafka] = await Promise.all([
    startPostgres({ dir: join(dir, 'postgres'), durable: false }),
    startKafka({ dir: join(dir, 'kafka'), heapMb: 384, jvm: ['-XX:TieredStopAtLevel=1'] }),
  ])
  stack.defer(() => postgres.kill('SIGQUIT'))
  stack.defer(() => kafka.kill())

  return {
    dir,
    async freshEnv() {
      const name = `test_${randomUUID().slice(0, 8)}`
      const server = knex({ client: 'pg', connection: postgres.url() })
      await server.raw('create database ??', [name])
      await server.destroy()
      const url = new URL(postgres.url())
      url.pathname = `/${name}`
      return {
        DATABASE_URL: url.href,
        KAFKA_BROKERS: kafka.brokers.join(),
        TOPIC_PREFIX: `${name}.`,
        LOG_LEVEL: 'info',
        // Tests of batches set it to 1; in all others one in a thousand would be one too many.
        OUTBOX_TRACES_BATCH_RATIO: '0',
      }
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}
