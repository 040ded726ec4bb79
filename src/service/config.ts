/** What the process is told by its environment: read, checked and given names here, and nowhere else. */
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { z } from 'zod'
import { type KafkaSecurity, kafkaSecurity } from './kafka-security.ts'
import { misspelt } from './misspelt.ts'
import { type PostgresConnection, parsePostgresUrl } from './postgres-url.ts'

/** What a process can do. Each can run alone, or any number of times. */
export const ROLES = ['api', 'relay', 'consumer'] as const
export type Role = (typeof ROLES)[number]

export interface ServiceConfig {
  readonly roles: readonly Role[]
  readonly http: {
    readonly host: string
    readonly port: number
    /** Off with `NODE_ENV=production`. */
    readonly introspection: boolean
    /** Pages that may call the API from a browser; none by default. */
    readonly corsOrigins: readonly string[]
  }
  readonly admin: { readonly host: string; readonly port: number }
  readonly database: { readonly connection: PostgresConnection; readonly migrate: boolean }
  readonly kafka: { readonly client: 'kafkajs'; readonly brokers: readonly string[] } & KafkaSecurity
  readonly topics: {
    readonly prefix: string
    readonly partitionCount: number
    /** `null` leaves it to the broker's default. */
    readonly replicationFactor: number | null
  }
  readonly relay: { readonly threads: number }
  readonly logLevel: LogLevel
  readonly logFormat: LogFormat
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** JSON for machines, text for people; `color` is text for a terminal. */
const LOG_FORMATS = ['json', 'text', 'color'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]

/**
 * The environment cannot be used. Lists every variable that is wrong and the
 * rule it breaks, never a value; of `ROLES` alone the words that are no role.
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly problems: readonly string[]

  constructor(problems: readonly string[]) {
    super(`The environment cannot be used:\n${problems.map((problem) => `  ${problem}`).join('\n')}`)
    this.problems = problems
  }
}

const port = (fallback: number) => wholeNumber(0, 65_535, fallback)
const host = z.string('must be a host name or an address').trim().min(1, 'must not be empty').default('127.0.0.1')
const flag = (fallback: boolean) =>
  z
    .enum(['true', 'false'], 'must be true or false')
    .default(fallback ? 'true' : 'false')
    .transform((text) => text === 'true')

const schema = z.object({
  DATABASE_URL: z.string('must be set: the URL of a Postgres (npm start brings one along)').transform(asPostgres),
  DATABASE_MIGRATE: flag(true),
  KAFKA_BROKERS: list().refine(
    (brokers) => brokers.every((broker) => /^(\[[0-9a-f:.]+\]|[\w.-]+):\d{1,5}$/i.test(broker)),
    'must be a list of host:port, separated by commas',
  ),
  KAFKA_CLIENT: z.enum(['kafkajs'], 'must be kafkajs').default('kafkajs'),
  KAFKA_TLS: flag(false),
  KAFKA_CA: fileContent(),
  KAFKA_CERT: fileContent(),
  KAFKA_KEY: fileContent(),
  KAFKA_SASL_MECHANISM: z
    .enum(
      ['plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer'],
      'must be plain, scram-sha-256, scram-sha-512 or oauthbearer',
    )
    .optional(),
  KAFKA_SASL_USERNAME: z.string().optional(),
  KAFKA_SASL_PASSWORD: z.string().optional(),
  KAFKA_SASL_PASSWORD_FILE: fileContent(),
  KAFKA_OAUTH_TOKEN_FILE: z.string().optional(),
  KAFKA_OAUTH_TOKEN_COMMAND: z.string().optional(),
  TOPIC_PREFIX: z
    .string()
    .regex(/^[\w.-]{0,100}$/, 'must have at most 100 letters, digits, dots, dashes and underscores')
    .default(''),
  TOPIC_PARTITIONS: wholeNumber(1, 10_000, 8),
  TOPIC_REPLICATION: wholeNumber(1, 100, null),
  HOST: host,
  PORT: port(4000),
  ADMIN_PORT: port(4001),
  CORS_ORIGINS: list().refine(
    (origins) => origins.every(isOrigin),
    'must be a list of origins such as https://shop.example, separated by commas; * is none',
  ),
  ROLES: z
    .string()
    .default(ROLES.join(','))
    .transform((text) => [...new Set(text.split(',').map((role) => role.trim()))])
    .pipe(z.array(z.enum(ROLES, { error: ({ input }) => roleProblem(input) })).min(1)),
  RELAY_THREADS: wholeNumber(1, 64, null),
  LOG_LEVEL: z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`).default('info'),
  LOG_FORMAT: z.enum(LOG_FORMATS, `must be one of ${LOG_FORMATS.join(', ')}`).default('json'),
  NODE_ENV: z.string().default('development'),
})

/** Names a word that is no role: a slip in it is hard to see. Anything but a short plain word may have strayed here, and is kept. */
function roleProblem(role: unknown): string {
  const rule = `must be a list of ${ROLES.join(', ')}, separated by commas`
  return /^[a-z]{1,16}$/i.test(String(role)) ? `${rule}; ${String(role)} is none of them` : rule
}

/** Every variable of our own, telemetry's and the local stack's included. */
export const SETTINGS: readonly string[] = [
  ...Object.keys(schema.shape),
  'DATA_DIR',
  'OUTBOX_NAME',
  'OUTBOX_TRACES_BATCH_RATIO',
  'OUTBOX_TRACES_WAIT',
]

/** A sentence for each variable of `environment` that looks like a slip for one of {@link SETTINGS}. */
export function misspeltSettings(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): readonly string[] {
  return misspelt(environment, SETTINGS)
}

/**
 * Reads `environment`. A variable that is set and empty counts as not set.
 * @throws ConfigError naming everything that is wrong at once
 */
export function readConfig(environment: Readonly<Record<string, string | undefined>> = process.env): ServiceConfig {
  const given = Object.fromEntries(Object.entries(environment).filter(([, text]) => text !== undefined && text !== ''))
  const result = schema.safeParse(given)
  if (!result.success) throw new ConfigError(allProblems(given, result.error.issues))
  const env = result.data
  const security = kafkaSecurity(env)
  const problems = [...security.problems, ...jointProblems(env)]
  if (problems.length > 0) throw new ConfigError(problems)

  return {
    roles: ROLES.filter((role) => env.ROLES.includes(role)),
    http: {
      host: env.HOST,
      port: env.PORT,
      introspection: env.NODE_ENV !== 'production',
      corsOrigins: env.CORS_ORIGINS,
    },
    admin: { host: env.HOST, port: env.ADMIN_PORT },
    database: { connection: env.DATABASE_URL, migrate: env.DATABASE_MIGRATE },
    kafka: { client: env.KAFKA_CLIENT, brokers: env.KAFKA_BROKERS, ...security.options },
    topics: {
      prefix: env.TOPIC_PREFIX,
      partitionCount: env.TOPIC_PARTITIONS,
      replicationFactor: env.TOPIC_REPLICATION,
    },
    relay: { threads: env.RELAY_THREADS ?? defaultRelayThreads(availableParallelism()) },
    logLevel: env.LOG_LEVEL,
    logFormat: env.LOG_FORMAT,
  }
}

/** One below four cores, else one core is left to the rest; more than four gain nothing on 64 lanes. */
export function defaultRelayThreads(cores: number): number {
  return cores < 4 ? 1 : Math.min(4, cores - 1)
}

/**
 * What single variables break, and what the usable ones break together. Of
 * those, nothing that names a variable which is wrong by itself: that would be
 * said of a guess.
 */
function allProblems(given: Readonly<Record<string, unknown>>, issues: readonly z.core.$ZodIssue[]): readonly string[] {
  const wrong = new Set(issues.map(({ path }) => String(path[0])))
  const single = issues.map(({ path, message }) => `${String(path[0])} ${message}`)
  const usable = Object.fromEntries(Object.entries(given).filter(([name]) => !wrong.has(name)))
  const rest = schema.partial({ DATABASE_URL: true }).safeParse(usable)
  const joint = rest.success ? [...kafkaSecurity(rest.data).problems, ...jointProblems(rest.data)] : []
  const isGuess = (problem: string) =>
    (problem.match(/[A-Z]+(?:_[A-Z]+)*/g) ?? []).some((name) => wrong.has(name)) ||
    (wrong.has('ROLES') && problem.startsWith('KAFKA_BROKERS'))
  return [...new Set([...single, ...joint.filter((problem) => !isGuess(problem))])]
}

/** What variables break together. */
function jointProblems({
  KAFKA_BROKERS,
  ROLES: roles,
  PORT,
  ADMIN_PORT,
}: Pick<z.infer<typeof schema>, 'KAFKA_BROKERS' | 'ROLES' | 'PORT' | 'ADMIN_PORT'>): readonly string[] {
  const problems: string[] = []
  if (KAFKA_BROKERS.length === 0 && (roles.includes('relay') || roles.includes('consumer'))) {
    problems.push(
      'KAFKA_BROKERS must be set for the roles relay and consumer: host:port, … (npm start brings one along)',
    )
  }
  if (roles.includes('api') && PORT !== 0 && PORT === ADMIN_PORT) problems.push('ADMIN_PORT must differ from PORT')
  return problems
}

/** Words separated by commas; none where the variable is not set. */
function list() {
  return z
    .string()
    .default('')
    .transform((text) =>
      text
        .split(',')
        .map((word) => word.trim())
        .filter(Boolean),
    )
}

/** Exactly as browsers send it: scheme, host and port where it is not the usual one, and nothing behind. */
function isOrigin(text: string): boolean {
  return /^https?:[^*]+$/.test(text) && URL.canParse(text) && new URL(text).origin === text
}

function wholeNumber<Fallback extends number | null>(least: number, most: number, fallback: Fallback) {
  const rule = `must be a whole number from ${least} to ${most}`
  return z
    .string()
    .regex(/^\d{1,9}$/, rule)
    .transform(Number)
    .refine((number) => number >= least && number <= most, rule)
    .optional()
    .transform((number) => number ?? fallback)
}

/** The content of the file that the variable names, without the newline that editors leave at its end. */
function fileContent() {
  return z
    .string()
    .transform((path, context) => {
      try {
        return readFileSync(path, 'utf8').replace(/\r?\n$/, '')
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException
        context.addIssue({ code: 'custom', message: `must name a file that can be read (${code})` })
        return z.NEVER
      }
    })
    .optional()
}

function asPostgres(text: string, context: z.RefinementCtx): PostgresConnection {
  try {
    return parsePostgresUrl(text)
  } catch (error) {
    context.addIssue({ code: 'custom', message: error instanceof Error ? error.message : 'cannot be read' })
    return z.NEVER
  }
}
