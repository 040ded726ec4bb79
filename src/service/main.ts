/**
 * The process: the roles that it is given, started, watched, and stopped in good order.
 *
 *     node --import ./src/service/telemetry.ts src/service/main.ts
 *
 * Exits with 0 after a stop that finished what was in hand, with 1 when work
 * was cut off or a part failed.
 */
import { once } from 'node:events'
import { MessagingError } from '../messaging/index.ts'
import { ConfigError, misspeltSettings, readConfig, type ServiceConfig } from './config.ts'
import { logDestination } from './log-text.ts'
import { createLogger } from './logger.ts'
import { runService } from './service.ts'
import { StartError } from './start-error.ts'
import { shutdownTelemetry, watchTelemetry } from './telemetry-handle.ts'

const identity = { service: 'orders', thread: 'main' }

async function main(): Promise<number> {
  const config = tryReadConfig()
  if (!config) return 1
  const logger = createLogger(identity, config.logLevel, logDestination(config.logFormat))
  for (const slip of misspeltSettings()) logger.warn({}, slip)
  watchTelemetry(['http', 'express', 'graphql', 'pg', 'knex'], (problem) => logger.warn({}, problem))
  // Whatever escapes everything else, told as the rest is.
  process.once('uncaughtException', (error) => {
    logger.error({ error }, 'The service has failed')
    process.exit(1)
  })
  const stop = new AbortController()
  // Each is heard once: a second signal ends the process at once.
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    void once(process, signal).then(() => {
      logger.info({ signal }, 'Stopping')
      stop.abort()
    })
  }
  try {
    return (await runService(config, { logger, stop: stop.signal })) ? 0 : 1
  } catch (error) {
    if (isForOperator(error)) logger.error({}, error.message)
    else logger.error({ error }, 'The service has failed')
    return 1
  } finally {
    await shutdownTelemetry()
  }
}

/** Whether the message alone says what to do: where it was thrown is nobody's business then. */
function isForOperator(error: unknown): error is Error {
  return error instanceof StartError || (error instanceof MessagingError && error.code === 'MESSAGING_SCHEMA_MISMATCH')
}

function tryReadConfig(): ServiceConfig | null {
  try {
    return readConfig()
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const problems = [...error.problems, ...misspeltSettings()]
    createLogger(identity, 'error').error({ problems }, 'The environment cannot be used')
    return null
  }
}

// What has not ended by now was given up: a socket or a thread of it must not keep the process.
process.exit(await main())
