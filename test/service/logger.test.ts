import { expect, test } from '@jest/globals'
import { silentLogger } from '../../src/messaging/index.ts'
import { createDatabase } from '../../src/service/database.ts'
import { logText } from '../../src/service/log-text.ts'
import { createLogger } from '../../src/service/logger.ts'
import { parsePostgresUrl } from '../../src/service/postgres-url.ts'
import { createTestDatabase } from '../support/database.ts'

const CANARY = 'canary-4711'

function createLog() {
  const lines: string[] = []
  const logger = createLogger({ service: 'orders', thread: 'main' }, 'debug', {
    write: (line: string) => lines.push(line),
  })
  return { logger, lines, last: () => JSON.parse(lines.at(-1) ?? '{}') }
}

test('a line says when, how bad, and whose it is', () => {
  const { logger, last } = createLog()

  logger.info({ part: 'api' }, 'Stopped')

  expect(last()).toEqual({
    level: 'info',
    time: expect.stringMatching(/Z$/),
    service: 'orders',
    thread: 'main',
    part: 'api',
    msg: 'Stopped',
  })
})

test.each([
  `insert into processed_events (consumer, event_id, outcome) values (?, gen_random_uuid(), ?)`,
  `select ?::uuid, ?::text`,
])('PC-65: what Postgres says of %s is logged without a value', async (sql) => {
  await using database = await createTestDatabase()
  const db = createDatabase(parsePostgresUrl(database.url), 'api', silentLogger)
  const { logger, lines, last } = createLog()

  const error = await db.raw(sql, [CANARY, CANARY]).catch((thrown: unknown) => thrown)
  await db.destroy()
  logger.error({ error, incidentId: 'incident-1' }, 'A request failed unexpectedly')

  expect(lines.join()).not.toContain(CANARY)
  expect(last()).toMatchObject({
    incidentId: 'incident-1',
    error: { code: expect.stringMatching(/^2/), severity: 'ERROR' },
  })
})

test('PC-65: of a value with lines like those of a stack none is logged as a place', async () => {
  await using database = await createTestDatabase()
  const db = createDatabase(parsePostgresUrl(database.url), 'api', silentLogger)
  const { logger, lines, last } = createLog()
  const value = `x\n    at ${CANARY}:1\n    at pay (/srv/${CANARY}.ts:1:2)\n`

  const error = await db.raw('select cast(? as text)::int', [value]).catch((thrown: unknown) => thrown)
  await db.destroy()
  logger.error({ error: new Error('Could not price', { cause: error }) }, 'A request failed unexpectedly')

  expect(lines.join()).not.toContain(CANARY)
  expect(last().error).toMatchObject({
    stack: expect.stringContaining('logger.test.ts'),
    cause: { code: '22P02', stack: expect.stringContaining('pg-protocol') },
  })
})

test.each([
  ['whose message cannot be read', Object.defineProperty(new Error('no'), 'message', { get: () => refuse() })],
  ['behind a proxy', new Proxy(new Error('no'), { get: () => refuse() })],
  [
    'behind a proxy that hides all',
    new Proxy(new Error('no'), { get: () => refuse(), getPrototypeOf: () => refuse() }),
  ],
])('an error %s is told as one that cannot be looked at, and stops nobody who logs it', (_how, error) => {
  const { logger, last } = createLog()

  logger.error({ error, reason: error }, 'Failed')

  const told = { message: 'thrown: an error that cannot be looked at' }
  expect(last()).toMatchObject({ error: told, reason: told, msg: 'Failed' })
})

test('an error keeps its facts, its causes and its place', () => {
  const { logger, last } = createLog()
  const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })

  logger.error(
    { error: Object.assign(new Error('Could not publish', { cause }), { topic: 'order.events', kind: 'outage' }) },
    'Failed',
  )

  expect(last().error).toMatchObject({
    message: 'Could not publish',
    topic: 'order.events',
    kind: 'outage',
    stack: expect.stringContaining('logger.test.ts'),
    cause: { code: 'ECONNREFUSED' },
  })
})

test('a connection that could not be had is told without a stack', () => {
  const { logger, last } = createLog()

  logger.warn({ error: Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }) }, 'Not reached')

  expect(last().error).toEqual({ type: 'Error', message: 'connect ECONNREFUSED', code: 'ECONNREFUSED' })
})

test('as text a line is for people: time, level, thread, message and fields, then what is wrong', () => {
  const { logger, lines } = createLog()

  logger.warn({ attempt: 2, trace_id: 'abc', error: Object.assign(new Error('no way'), { code: 'EPIPE' }) }, 'Failed')

  expect(logText(lines[0] ?? '', { color: false })).toMatch(
    /^\d\d:\d\d:\d\d\.\d{3} warn {2}main {5}Failed attempt=2 trace_id=abc\n {28}Error: no way \(EPIPE\)\n$/,
  )
  expect(logText(lines[0] ?? '', { color: true })).toContain('\u001b[33m')
})

test('what must not be written is not, wherever somebody puts it', () => {
  const { logger, lines } = createLog()

  logger.info({ password: CANARY, event: { payload: CANARY }, headers: { authorization: CANARY } }, 'Careless')

  expect(lines.join()).not.toContain(CANARY)
})

function refuse(): never {
  throw new Error('It cannot be looked at')
}
