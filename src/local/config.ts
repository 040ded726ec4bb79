/** The settings of the local stack, and the only place in this folder that reads the environment. */
import { homedir, userInfo } from 'node:os'
import { join, resolve } from 'node:path'
import { ConfigError, misspeltSettings, ROLES, readConfig } from '../service/config.ts'

export interface LocalConfig {
  /** Where the embedded servers keep their data. `DATA_DIR`; default `.data` in the working directory. */
  readonly dataDir: string
  /** A Postgres to use in place of the embedded one. `DATABASE_URL`. */
  readonly databaseUrl: string | null
  /** Kafka to use in place of the embedded one, `host:port,host:port`. `KAFKA_BROKERS`. */
  readonly kafkaBrokers: string | null
  /** Where traces go in place of the local Jaeger. `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, else `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  readonly otlpEndpoint: string | null
  /** Whether nobody wants traces, so that Jaeger would wait for nothing. `OTEL_SDK_DISABLED=true`, `OTEL_TRACES_EXPORTER=none`. */
  readonly tracesOff: boolean
  /** Whether traces show how long an event waited. `OUTBOX_TRACES_WAIT`; default `true`: whoever looks for the first time is to see where the time goes. */
  readonly tracesWait: string
  /** GraphQL's port. `PORT`; default 4000. */
  readonly port: number
  /** The port of health, readiness and metrics. `ADMIN_PORT`; default 4001. */
  readonly adminPort: number
  /** What the service will do. `ROLES`; default all. */
  readonly roles: readonly string[]
  /** How its log is to look: for people in a terminal, in colour unless `NO_COLOR` says not to. `LOG_FORMAT` decides where it is set. */
  readonly logFormat: string
  /** What cannot be used, a sentence for each variable: told together with whatever else is in the way. */
  readonly problems: readonly string[]
  /** Variables that look like slips for others, a sentence each. */
  readonly slips: readonly string[]
}

/** The ports that people know. */
export const usualPorts = { graphql: 4000, admin: 4001, jaeger: 16_686, prometheus: 9090, grafana: 3000 } as const

/** Whether servers are to be started here, and not only the service. */
export function ownsServers({ databaseUrl, kafkaBrokers }: LocalConfig): boolean {
  return databaseUrl === null || kafkaBrokers === null
}

/**
 * Reads the settings of `npm start`. With `service` the environment is held to
 * the service's own rules too, before anything is started for it.
 */
export function readLocalConfig({
  env = process.env,
  service,
}: {
  env?: NodeJS.ProcessEnv
  service: boolean
}): LocalConfig {
  const problems: string[] = []
  const port = (name: string, otherwise: number) => {
    const text = env[name]
    if (!text) return otherwise
    const number = Number(text)
    if (Number.isInteger(number) && number > 0 && number < 65_536) return number
    problems.push(`${name} must be a port, 1 to 65535, and is '${text}'.`)
    return otherwise
  }
  const config = {
    dataDir: resolve(env.DATA_DIR || '.data'),
    databaseUrl: env.DATABASE_URL || null,
    kafkaBrokers: env.KAFKA_BROKERS || null,
    otlpEndpoint: env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || env.OTEL_EXPORTER_OTLP_ENDPOINT || null,
    tracesOff: env.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || env.OTEL_TRACES_EXPORTER === 'none',
    tracesWait: env.OUTBOX_TRACES_WAIT || 'true',
    port: port('PORT', usualPorts.graphql),
    adminPort: port('ADMIN_PORT', usualPorts.admin),
    roles: (env.ROLES || ROLES.join()).split(',').map((role) => role.trim()),
    logFormat: env.LOG_FORMAT || (process.stdout.isTTY ? (env.NO_COLOR ? 'text' : 'color') : 'json'),
  }
  if (service) problems.push(...serviceProblems(env))
  // Of two sentences about one variable the first will do.
  const first = Map.groupBy(problems, (problem) => problem.split(' ', 1)[0])
  return {
    ...config,
    problems: [...first.values()].flatMap(([problem]) => problem ?? []),
    slips: misspeltSettings(env),
  }
}

/** What the service would refuse, were it started with this environment and the embedded servers. */
function serviceProblems(env: NodeJS.ProcessEnv): readonly string[] {
  try {
    readConfig({
      ...env,
      DATABASE_URL: env.DATABASE_URL || 'postgres://embedded@127.0.0.1/orders',
      KAFKA_BROKERS: env.KAFKA_BROKERS || '127.0.0.1:9092',
    })
    return []
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map((problem) => `${problem}.`)
    throw error
  }
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
