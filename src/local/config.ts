/** The settings of the local stack, and the only place in this folder that reads the environment. */
import { homedir, userInfo } from 'node:os'
import { join, resolve } from 'node:path'
import { StackError } from './stack-error.ts'

export interface LocalConfig {
  /** Where the embedded servers keep their data. `DATA_DIR`; default `.data` in the working directory. */
  readonly dataDir: string
  /** A Postgres to use in place of the embedded one. `DATABASE_URL`. */
  readonly databaseUrl: string | null
  /** Kafka to use in place of the embedded one, `host:port,host:port`. `KAFKA_BROKERS`. */
  readonly kafkaBrokers: string | null
  /** Where traces go in place of the local Jaeger. `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  readonly otlpEndpoint: string | null
  /** GraphQL's port. `PORT`; default 4000. */
  readonly port: number
  /** The port of health, readiness and metrics. `ADMIN_PORT`; default 4001. */
  readonly adminPort: number
}

/** Reads the settings of `npm start`. Throws {@link StackError} naming the variable that it cannot use. */
export function readLocalConfig(env: NodeJS.ProcessEnv = process.env): LocalConfig {
  return {
    dataDir: resolve(env.DATA_DIR || '.data'),
    databaseUrl: env.DATABASE_URL || null,
    kafkaBrokers: env.KAFKA_BROKERS || null,
    otlpEndpoint: env.OTEL_EXPORTER_OTLP_ENDPOINT || null,
    port: readPort(env, 'PORT', 4000),
    adminPort: readPort(env, 'ADMIN_PORT', 4001),
  }
}

function readPort(env: NodeJS.ProcessEnv, name: string, otherwise: number): number {
  const text = env[name]
  if (!text) return otherwise
  const port = Number(text)
  if (Number.isInteger(port) && port > 0 && port < 65_536) return port
  throw new StackError(`${name} must be a port, 1 to 65535, and is '${text}'.`)
}

/** The environment that a child process inherits. */
export function inheritedEnv(): NodeJS.ProcessEnv {
  return process.env
}

/** The folder for what is fetched or built once and shared by all checkouts: `XDG_CACHE_HOME` or the system's usual one. */
export function cacheDir(env: NodeJS.ProcessEnv = process.env): string {
  const usual = process.platform === 'darwin' ? 'Library/Caches' : '.cache'
  return join(env.XDG_CACHE_HOME || join(homedir(), usual), 'graphql-outbox')
}

/** Whether this process is root, under which Postgres refuses to run. */
export function runningAsRoot(): boolean {
  return userInfo().uid === 0
}
