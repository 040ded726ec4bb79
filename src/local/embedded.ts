/** The Postgres and the Kafka that the service uses: embedded ones, unless the environment names others. */
import { join } from 'node:path'
import pg from 'pg'
import type { LocalConfig } from './config.ts'
import { startKafka } from './kafka.ts'
import { startPostgres } from './postgres.ts'

/** A server of the stack, embedded or not. */
export interface Part extends AsyncDisposable {
  /** What the service is told: a connection string, or a list of brokers. */
  readonly address: string
  /** Rejects when an embedded server ends by itself; never resolves. */
  readonly failed: Promise<never>
  /** Ends it at once; its data survives that. */
  kill(): Promise<void>
}

export interface PartOptions {
  readonly config: LocalConfig
  readonly say: (line: string) => void
}

const DATABASE = 'orders'

/** Resolves once Postgres can be used. */
export async function providePostgres({ config, say }: PartOptions): Promise<Part> {
  if (config.databaseUrl !== null) return foreign('Postgres', 'DATABASE_URL', config.databaseUrl, say)
  const begun = performance.now()
  say('Postgres: starting')
  const dir = join(config.dataDir, 'postgres')
  const postgres = await startPostgres({ dir })
  await createDatabase(postgres.url(), DATABASE)
  say(`Postgres: ready at 127.0.0.1:${postgres.port}${after(begun)}`)
  if (postgres.dir !== dir)
    say(`Postgres: its data is in ${postgres.dir}, as ${dir} is closed to the account that it runs as`)
  return {
    address: postgres.url(DATABASE),
    failed: postgres.failed,
    kill: () => postgres.kill('SIGQUIT'),
    [Symbol.asyncDispose]: () => postgres.stop(),
  }
}

/** Resolves once Kafka can be used. */
export async function provideKafka({ config, say }: PartOptions): Promise<Part> {
  if (config.kafkaBrokers !== null) return foreign('Kafka', 'KAFKA_BROKERS', config.kafkaBrokers, say)
  const begun = performance.now()
  say('Kafka: starting')
  const kafka = await startKafka({
    dir: join(config.dataDir, 'kafka'),
    onFetch: () => say('Kafka: fetching 54 MB of jars with Maven and preparing them, this once'),
  })
  say(`Kafka: ready at ${kafka.brokers.join()}${after(begun)}`)
  return {
    address: kafka.brokers.join(),
    failed: kafka.failed,
    kill: () => kafka.kill(),
    [Symbol.asyncDispose]: () => kafka.stop(),
  }
}

function foreign(name: string, variable: string, address: string, say: (line: string) => void): Part {
  say(`${name}: none started, as ${variable} names one`)
  const failed = new Promise<never>(() => {})
  return { address, failed, kill: async () => {}, [Symbol.asyncDispose]: async () => {} }
}

async function createDatabase(url: string, name: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query('select 1 from pg_database where datname = $1', [name])
    if (rows.length === 0) await client.query(`create database ${client.escapeIdentifier(name)}`)
  } finally {
    await client.end()
  }
}

function after(begun: number): string {
  return ` (${((performance.now() - begun) / 1_000).toFixed(1)} s)`
}
