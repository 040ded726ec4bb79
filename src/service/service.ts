/**
 * What the process does between its start and its end: opens the admin port,
 * prepares the database, starts a part for each role, and stops them again when
 * it is asked to or when one of them fails.
 */
import { once } from 'node:events'
import { flushCompileCache } from 'node:module'
import type { Knex } from 'knex'
import { isDatabaseUnavailable } from '../graphql/database-failure.ts'
import { startGraphQLServer } from '../graphql/server.ts'
import {
  backoffMs,
  type Logger,
  lastingState,
  type Running,
  type Status,
  startOutboxGauges,
  startWakeNotifier,
  systemClock,
} from '../messaging/index.ts'
import { type AdminServer, startAdminServer } from './admin.ts'
import type { Role, ServiceConfig } from './config.ts'
import { CONSUMER_GRACE_MS, startConsumerThread } from './consumer-thread.ts'
import { createDatabase } from './database.ts'
import { createHealth, type Health } from './health.ts'
import { createProbe } from './probe.ts'
import { RELAY_GRACE_MS, startRelayThreads } from './relay-threads.ts'
import { prepareSchema } from './schema.ts'
import { StartError } from './start-error.ts'
import { type Part, stopInOrder } from './stop.ts'
import { collectMetrics } from './telemetry-handle.ts'
import { topicRule } from './topics.ts'

/** Milliseconds that running requests have to answer. */
const API_GRACE_MS = 6_000
/** Milliseconds for all parts together. */
const GRACE_MS = 10_000
/** Milliseconds for closing the pools. */
const CLOSE_MS = 1_000
const DATABASE_PROBE = {
  timeoutMs: 2_000,
  freshMs: 1_000,
  problem: 'Postgres does not answer: queries and mutations fail',
}
const DATABASE_BACKOFF = { firstMs: 250, maxMs: 5_000 }

interface ServiceContext {
  readonly logger: Logger
  /** Aborts when the process should end. */
  readonly stop: AbortSignal
}

type Checks = Partial<Record<Role, () => Promise<Status>>>

/** Runs the roles of `config` until `stop`; resolves to whether everything ended in good order. */
export async function runService(config: ServiceConfig, context: ServiceContext): Promise<boolean> {
  const { logger, stop } = context
  const checks: Checks = {}
  const health = createHealth(config.roles, checks)
  const pools: Knex[] = []
  const parts: Part[] = []
  const admin = await listen('ADMIN_PORT', config.admin.port, () =>
    startAdminServer({ ...config.admin, health, metrics: collectMetrics, logger }),
  )
  logger.info({ url: admin.url }, 'The admin port listens')
  let sound = true
  try {
    await waitForSchema(config, health, context)
    if (!stop.aborted) {
      await startRoles(config, { adminUrl: admin.url, logger, checks, pools, parts })
      logger.info({ roles: config.roles }, 'Started')
      // For the next start, where NODE_COMPILE_CACHE names a folder: a process that is killed writes nothing at its end.
      flushCompileCache()
      sound = await untilStopped(parts, context)
    }
  } finally {
    sound = (await shutDown({ health, parts, pools, admin, logger })) && sound
  }
  return sound
}

/** Postgres may come up after us, and is waited for; a schema that does not fit is not. */
async function waitForSchema(
  config: ServiceConfig,
  health: Pick<Health, 'waitsFor'>,
  { logger, stop }: ServiceContext,
): Promise<void> {
  const away = lastingState()
  for (let attempt = 1; !stop.aborted; attempt++) {
    try {
      await prepareSchema(config, logger)
      health.waitsFor(null)
      away.ends((lasting) => logger.info({ ...lasting }, 'Postgres can be reached'))
      return
    } catch (error) {
      const refused = refusedLogin(error)
      if (refused !== null) throw new StartError(refused)
      if (!isDatabaseUnavailable(error)) throw error
      const pauseMs = backoffMs(DATABASE_BACKOFF, attempt, Math.random())
      health.waitsFor(`Postgres cannot be reached (${reasonOf(error)})`)
      away.holds(() => logger.warn({ error, attempt }, 'Postgres cannot be reached yet'))
      await systemClock.pause(pauseMs, stop)
    }
  }
}

/** An error's code, or its class where it has none: never its message, which may name hosts and users. */
function reasonOf(error: unknown): string {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  // The driver's own timeouts are plain errors.
  return error instanceof Error && error.name !== 'Error' ? error.name : 'no answer'
}

/** What Postgres says to whom it does not let in, in a sentence for the operator: it names no secret. */
function refusedLogin(error: unknown): string | null {
  if (!(error instanceof Error && 'code' in error && /^(28...|3D000)$/.test(String(error.code)))) return null
  return `Postgres does not let us in: ${error.message} (${error.code}). DATABASE_URL says who, with which password, to which database`
}

interface Starting {
  readonly adminUrl: string
  readonly logger: Logger
  readonly checks: Checks
  readonly pools: Knex[]
  /** In the order in which they are to stop. */
  readonly parts: Part[]
}

async function startRoles(config: ServiceConfig, { adminUrl, logger, checks, pools, parts }: Starting): Promise<void> {
  const open = (role: 'api' | 'relay') => {
    const db = createDatabase(config.database.connection, role, logger)
    pools.push(db)
    return db
  }
  const has = (role: Role) => config.roles.includes(role)

  if (has('api')) {
    const db = open('api')
    const server = await listen('PORT', config.http.port, () =>
      startGraphQLServer({
        ...config.http,
        adminUrl: config.http.introspection ? adminUrl : null,
        db,
        topicFor: topicRule(config),
        graceMs: API_GRACE_MS,
        logger,
      }),
    )
    logger.info({ url: server.url }, 'The API listens')
    checks.api = createProbe(() => db.raw('select 1'), DATABASE_PROBE)
    parts.push({ name: 'api', running: server, graceMs: API_GRACE_MS })
    // After the API: the last commits, too, are told to other processes.
    parts.push({ name: 'wake notifier', running: startWakeNotifier(db, { logger }), graceMs: GRACE_MS })
  }
  if (has('relay')) {
    const db = open('relay')
    const relay = startRelayThreads(db, config, logger)
    checks.relay = async () => relay.status()
    parts.push({ name: 'relay', running: relay, graceMs: RELAY_GRACE_MS })
    parts.push({ name: 'gauges', running: startOutboxGauges({ db, logger }), graceMs: GRACE_MS })
  }
  if (has('consumer')) {
    const consumer = startConsumerThread({ logger })
    checks.consumer = async () => consumer.status()
    parts.push({ name: 'consumer', running: consumer, graceMs: CONSUMER_GRACE_MS })
  }
}

/** Resolves to true when the process is asked to stop, to false when a part has ended by itself. */
async function untilStopped(parts: readonly Part[], { logger, stop }: ServiceContext): Promise<boolean> {
  const asked = once(stop, 'abort').then(() => true)
  const ended = parts.map(async ({ name, running }) => {
    await running.done.catch((error: unknown) => {
      logger.error({ part: name, error }, 'A part has failed; the service stops')
    })
    return false
  })
  return stop.aborted || (await Promise.race([asked, ...ended]))
}

/** Readiness first, so that load balancers turn away; pools last, when nobody uses them. */
async function shutDown(all: {
  health: Health
  parts: readonly Part[]
  pools: readonly Knex[]
  admin: AdminServer
  logger: Logger
}): Promise<boolean> {
  const { health, parts, pools, admin, logger } = all
  health.drain()
  const sound = await stopInOrder(parts, { handOnMs: API_GRACE_MS, deadlineMs: GRACE_MS, logger })
  await Promise.race([
    Promise.allSettled(pools.map((pool) => pool.destroy())),
    systemClock.pause(CLOSE_MS, new AbortController().signal),
  ])
  await admin.stop()
  return sound
}

/** What is said of a host that is none of this machine's. */
const NOT_OURS = ['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN']

/** Starts something that listens; a port that is taken, or a host that is not ours, is told in one clear sentence. */
async function listen<T extends Running>(variable: string, port: number, start: () => Promise<T>): Promise<T> {
  try {
    return await start()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : ''
    if (NOT_OURS.includes(code)) {
      throw new StartError(
        `HOST is no name or address of this machine (${code}): set it to 127.0.0.1, or 0.0.0.0 for all`,
      )
    }
    if (code !== 'EADDRINUSE') throw error
    throw new StartError(`Port ${port} is in use by another process: set ${variable} to a free one`)
  }
}
