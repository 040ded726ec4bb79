import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { ConfigError, defaultRelayThreads, readConfig } from '../../src/service/config.ts'

const required = { DATABASE_URL: 'postgres://user:secret-1@db.example/orders', KAFKA_BROKERS: 'kafka-1:9092' }

function problemsOf(environment: Record<string, string>): readonly string[] {
  try {
    readConfig(environment)
  } catch (error) {
    if (error instanceof ConfigError) return error.problems
    throw error
  }
  return []
}

test('two variables are enough; the rest has defaults', () => {
  expect(readConfig(required)).toMatchObject({
    roles: ['api', 'relay', 'consumer'],
    http: { host: '127.0.0.1', port: 4000, introspection: true },
    admin: { host: '127.0.0.1', port: 4001 },
    database: { migrate: true },
    kafka: { client: 'kafkajs', brokers: ['kafka-1:9092'] },
    topics: { prefix: '', partitionCount: 8, replicationFactor: null },
    logLevel: 'info',
    logFormat: 'json',
  })
})

test('every variable that is wrong is named with its rule, all at once, and no value is shown', () => {
  const problems = problemsOf({
    ...required,
    DATABASE_URL: 'mysql://user:secret-2@db/orders',
    KAFKA_BROKERS: 'secret-3',
    PORT: 'secret-4',
    RELAY_THREADS: '0',
    ROLES: 'api,secret-5',
    LOG_LEVEL: 'secret-6',
    KAFKA_TLS: 'yes',
    TOPIC_PREFIX: 'no spaces',
  })

  expect(problems).toEqual([
    'DATABASE_URL must be a URL such as postgres://user:password@host:5432/database',
    'KAFKA_BROKERS must be a list of host:port, separated by commas',
    'KAFKA_TLS must be true or false',
    'TOPIC_PREFIX must have at most 100 letters, digits, dots, dashes and underscores',
    'PORT must be a whole number from 0 to 65535',
    'ROLES must be a list of api, relay, consumer, separated by commas',
    'RELAY_THREADS must be a whole number from 1 to 64',
    'LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent',
  ])
})

test('a slip in a role is shown', () => {
  expect(problemsOf({ ...required, ROLES: 'api, consumr' })).toEqual([
    'ROLES must be a list of api, relay, consumer, separated by commas; consumr is none of them',
  ])
})

test('nothing set at all says what is needed', () => {
  const needed = [
    'DATABASE_URL must be set: the URL of a Postgres (npm start brings one along)',
    expect.stringMatching(/^KAFKA_BROKERS must be set for the roles relay and consumer/),
  ]

  expect(problemsOf({})).toEqual(needed)
  expect(problemsOf({ ROLES: 'relay' })).toEqual(needed)
})

test('what variables break together is named beside what one breaks alone, and never guessed', () => {
  const { DATABASE_URL } = required
  const sasl = { KAFKA_SASL_MECHANISM: 'scram-sha-256', KAFKA_SASL_USERNAME: 'me' }

  expect(problemsOf({ ...required, ...sasl, PORT: 'x' })).toEqual([
    expect.stringMatching(/^PORT must be/),
    expect.stringMatching(/^KAFKA_SASL_PASSWORD or KAFKA_SASL_PASSWORD_FILE/),
  ])
  expect(problemsOf({ DATABASE_URL, ROLES: 'nonsense' })).toEqual([expect.stringMatching(/^ROLES must be/)])
  expect(problemsOf({ ...required, ...sasl, KAFKA_SASL_PASSWORD_FILE: '/no/such/file' })).toEqual([
    'KAFKA_SASL_PASSWORD_FILE must name a file that can be read (ENOENT)',
  ])
})

test.each([
  ['*'],
  ['null'],
  ['shop.example'],
  ['https://shop.example/'],
  ['https://*.shop.example'],
  ['https://shop.example, *'],
])('CORS_ORIGINS takes origins alone: %s is refused', (text) => {
  expect(problemsOf({ ...required, CORS_ORIGINS: text })).toEqual([expect.stringMatching(/^CORS_ORIGINS must be/)])
})

test('CORS_ORIGINS names origins, and is empty by itself', () => {
  const origins = (text: string) => readConfig({ ...required, CORS_ORIGINS: text }).http.corsOrigins

  expect(origins('https://shop.example, http://localhost:3000')).toEqual([
    'https://shop.example',
    'http://localhost:3000',
  ])
  expect(readConfig(required).http.corsOrigins).toEqual([])
})

test('the API alone needs no broker, a relay does', () => {
  const { DATABASE_URL } = required

  expect(readConfig({ DATABASE_URL, ROLES: 'api' }).roles).toEqual(['api'])
  expect(problemsOf({ DATABASE_URL, ROLES: 'relay' })).toEqual([expect.stringMatching(/^KAFKA_BROKERS must be set/)])
})

test.each([
  [
    { KAFKA_SASL_MECHANISM: 'scram-sha-256' },
    ['KAFKA_SASL_USERNAME must be', 'KAFKA_SASL_PASSWORD or KAFKA_SASL_PASSWORD_FILE'],
  ],
  [{ KAFKA_SASL_USERNAME: 'me' }, ['KAFKA_SASL_MECHANISM must be set']],
  [
    { KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_USERNAME: 'me', KAFKA_SASL_PASSWORD: 'p' },
    ['KAFKA_TLS must be true for plain'],
  ],
  [{ KAFKA_SASL_MECHANISM: 'oauthbearer', KAFKA_TLS: 'true' }, ['KAFKA_OAUTH_TOKEN_FILE or']],
  [{ KAFKA_CA: '/no/such/file', KAFKA_TLS: 'true' }, ['KAFKA_CA must name a file that can be read (ENOENT)']],
  [{ PORT: '5000', ADMIN_PORT: '5000' }, ['ADMIN_PORT must differ from PORT']],
])('what would not be used, or not be safe, is refused: %j', (change, expected) => {
  expect(problemsOf({ ...required, ...change })).toEqual(expected.map((start) => expect.stringContaining(start)))
})

test('secrets come from files, certificates are always verified, and tokens are read anew each time', async () => {
  await using folder = await temporaryFolder()
  const path = (name: string) => join(folder.path, name)
  await writeFile(path('ca.pem'), 'authority\n')
  await writeFile(path('password'), 'from-a-file\n')
  await writeFile(path('token'), 'token-1\n')
  const tls = { ...required, KAFKA_TLS: 'true', KAFKA_CA: path('ca.pem') }

  const scram = readConfig({
    ...tls,
    KAFKA_SASL_MECHANISM: 'scram-sha-512',
    KAFKA_SASL_USERNAME: 'me',
    KAFKA_SASL_PASSWORD_FILE: path('password'),
  })
  const oauth = readConfig({ ...tls, KAFKA_SASL_MECHANISM: 'oauthbearer', KAFKA_OAUTH_TOKEN_FILE: path('token') })
  const command = readConfig({
    ...tls,
    KAFKA_SASL_MECHANISM: 'oauthbearer',
    KAFKA_OAUTH_TOKEN_COMMAND: 'echo from-a-command',
  })

  expect(scram.kafka.ssl).toEqual({ rejectUnauthorized: true, ca: 'authority' })
  expect(scram.kafka.sasl).toEqual({ mechanism: 'scram-sha-512', username: 'me', password: 'from-a-file' })
  const token = async ({ kafka }: typeof oauth) =>
    kafka.sasl?.mechanism === 'oauthbearer' ? await kafka.sasl.token() : ''
  expect(await token(oauth)).toBe('token-1')
  await writeFile(path('token'), 'token-2\n')
  expect(await token(oauth)).toBe('token-2')
  expect(await token(command)).toBe('from-a-command')
})

test('production hides the schema', () => {
  expect(readConfig({ ...required, NODE_ENV: 'production' }).http.introspection).toBe(false)
})

test.each([
  [1, 1],
  [2, 1],
  [3, 1],
  [4, 3],
  [5, 4],
  [64, 4],
])('%i cores get %i relay threads', (cores, threads) => {
  expect(defaultRelayThreads(cores)).toBe(threads)
})

async function temporaryFolder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'config-test-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) }
}
