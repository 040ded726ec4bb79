/**
 * What a client sees of an error: one function decides it.
 *
 * A refusal goes out as it is, GraphQL's own complaints go out as they are, and
 * of everything else the client gets a number under which the log has the rest.
 * Nothing here passes on SQL, a stored value or a stack.
 */
import { randomUUID } from 'node:crypto'
import { unwrapResolverError } from '@apollo/server/errors'
import { GraphQLError, type GraphQLFormattedError } from 'graphql'
import type { Logger } from '../messaging/index.ts'
import { OrderRefusal, type RefusalCode } from '../orders/refusal.ts'
import { isDatabaseUnavailable } from './database-failure.ts'

/** `extensions.code` of the errors that are not GraphQL's own. */
export type ErrorCode =
  | 'BAD_USER_INPUT'
  | 'NOT_FOUND'
  | 'ILLEGAL_TRANSITION'
  | 'SERVICE_UNAVAILABLE'
  | 'COMMIT_UNKNOWN'
  | 'INTERNAL'

const refusalCodes: Readonly<Record<RefusalCode, ErrorCode>> = {
  BAD_INPUT: 'BAD_USER_INPUT',
  NOT_FOUND: 'NOT_FOUND',
  ILLEGAL_TRANSITION: 'ILLEGAL_TRANSITION',
}

/** For Apollo's `formatError`. Whatever the client is not told goes to `logger`, under the id that it is told. */
export function createErrorFormatter(
  logger: Logger,
): (formatted: GraphQLFormattedError, error: unknown) => GraphQLFormattedError {
  return (formatted, error) => {
    const cause = causeOf(error)
    const { message, extensions } = describe(cause, formatted, logger)
    return {
      message,
      ...(formatted.locations && { locations: formatted.locations }),
      ...(formatted.path && { path: formatted.path }),
      extensions,
    }
  }
}

/** What a resolver threw. An error of another realm, such as a socket's in a test, comes wrapped once more by GraphQL. */
function causeOf(error: unknown): unknown {
  const thrown = unwrapResolverError(error)
  return thrown instanceof Error && 'thrownValue' in thrown ? thrown.thrownValue : thrown
}

interface Description {
  readonly message: string
  readonly extensions: Readonly<Record<string, unknown>>
}

function describe(cause: unknown, formatted: GraphQLFormattedError, logger: Logger): Description {
  if (cause instanceof OrderRefusal) {
    const problems = cause.problems.length > 0 ? { problems: cause.problems } : {}
    return { message: cause.message, extensions: { code: refusalCodes[cause.code], ...problems } }
  }
  if (hasCode(cause, 'MESSAGING_COMMIT_UNKNOWN')) {
    logger.warn({ error: cause }, 'A mutation may or may not have committed')
    return {
      message: 'Whether this change took effect is not known: look before trying again',
      extensions: { code: 'COMMIT_UNKNOWN' satisfies ErrorCode },
    }
  }
  if (isDatabaseUnavailable(cause)) {
    logger.warn({ error: cause }, 'A request failed because the database could not answer')
    // Below a mutation's own field something was read after its commit.
    const isPartOfAnswer = (formatted.path?.length ?? 0) > 1
    return {
      message: isPartOfAnswer
        ? 'The service cannot reach its database just now. This part of the answer is missing; what a mutation has changed stands'
        : 'The service cannot reach its database just now. Nothing was changed; try again',
      extensions: { code: 'SERVICE_UNAVAILABLE' satisfies ErrorCode },
    }
  }
  if (isComplaintAboutRequest(cause, formatted)) {
    return { message: formatted.message, extensions: { code: formatted.extensions?.code } }
  }
  const late = lateComplaint(cause)
  if (late !== null) return late
  const incidentId = randomUUID()
  logger.error({ error: cause, incidentId }, 'A request failed unexpectedly')
  return {
    message: `Something went wrong on our side; support can find it under ${incidentId}`,
    extensions: { code: 'INTERNAL' satisfies ErrorCode, incidentId },
  }
}

/** Whether GraphQL itself found the request wanting: it cannot be parsed, is not valid, or its variables do not fit. */
function isComplaintAboutRequest(cause: unknown, formatted: GraphQLFormattedError): boolean {
  return cause instanceof GraphQLError && formatted.extensions?.code !== 'INTERNAL_SERVER_ERROR'
}

/**
 * What GraphQL finds wanting only as it executes, and does not tell from our own
 * faults: `null` in a variable for an argument that has a default, and an
 * operation of a kind that the schema has not.
 */
function lateComplaint(cause: unknown): Description | null {
  if (!(cause instanceof GraphQLError)) return null
  const { message } = cause
  if (/^Argument "\w+" (of|has) /.test(message)) {
    return { message, extensions: { code: 'BAD_USER_INPUT' satisfies ErrorCode } }
  }
  const [, kind] = /^Schema is not configured to execute (\w+) operation/.exec(message) ?? []
  if (kind === undefined) return null
  const told = `This API has no ${kind}s: send a query or a mutation`
  return { message: told, extensions: { code: 'OPERATION_RESOLUTION_FAILURE' } }
}

function hasCode(error: unknown, code: string): boolean {
  return typeof error === 'object' && error !== null && 'code' in error && error.code === code
}
