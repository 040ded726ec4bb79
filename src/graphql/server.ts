/**
 * The API over HTTP: Apollo Server on Express, as a part with a life of its own.
 *
 * Stopping takes no new connection, lets running operations answer, closes
 * connections that idle, and cuts what is left when the grace period is over.
 */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ApolloServer } from '@apollo/server'
import { ApolloServerPluginLandingPageDisabled } from '@apollo/server/plugin/disabled'
import { ApolloServerPluginDrainHttpServer } from '@apollo/server/plugin/drainHttpServer'
import { expressMiddleware } from '@as-integrations/express5'
import express, { type ErrorRequestHandler, type RequestHandler } from 'express'
import type { Knex } from 'knex'
import { type Logger, type Running, run, type Shutdown, type TopicRule } from '../messaging/index.ts'
import { createContext, type RequestContext } from './context.ts'
import { allowOrigins } from './cors.ts'
import { createErrorFormatter } from './errors.ts'
import { explorerPage, explorerPolicy } from './explorer.ts'
import { trackInFlight } from './in-flight.ts'
import { outboxExtension } from './outbox-extension.ts'
import { resolvers } from './resolvers.ts'

/** A body's size at most, in bytes: an order of the most items takes a tenth of it. */
const MAX_BODY_BYTES = 262_144
/** Tokens in a document at most: what takes longer to parse is refused unread. */
const MAX_TOKENS = 5_000
/** What answers can be sent as. With their charset, as an `Accept` may name it, too. */
const ANSWER_TYPES = ['application/json; charset=utf-8', 'application/graphql-response+json; charset=utf-8']

export interface GraphQLServerOptions {
  /** The pool that commands and queries use. Stays the caller's. */
  readonly db: Knex
  /** The relay's topic rule, for the names in traces. */
  readonly topicFor: TopicRule
  readonly host: string
  /** 0 takes any free port. */
  readonly port: number
  /** Whether clients may ask for the schema, and errors may hint at names in it. Off where the schema is nobody's business. */
  readonly introspection: boolean
  /** Pages that may call the API from a browser, by their origins: `https://shop.example`. Every other page may not. @defaultValue none */
  readonly corsOrigins?: readonly string[]
  /** Where the process tells of itself, for the page at `/` to lead there: `http://127.0.0.1:4001`. @defaultValue none: the page says nothing of it */
  readonly adminUrl?: string | null
  /** Milliseconds that running operations have to answer when the server stops. */
  readonly graceMs: number
  readonly logger: Logger
}

export interface GraphQLServer extends Running {
  /** Where it listens: `http://127.0.0.1:4000`. */
  readonly url: string
}

/** Listens and serves. Rejects with the system's own error (`EADDRINUSE`) when it cannot listen. */
export async function startGraphQLServer(options: GraphQLServerOptions): Promise<GraphQLServer> {
  const app = express()
  // Bounds for slow or silent clients, in milliseconds; keep-alive outlasts the usual 60 s of load balancers.
  const http = createServer({ requestTimeout: 30_000, headersTimeout: 10_000, keepAliveTimeout: 65_000 }, app)
  const inFlight = trackInFlight()
  const apollo = await startApollo(http, inFlight.plugin, options)
  mount(app, apollo, options)

  try {
    http.listen(options.port, options.host)
    await once(http, 'listening')
  } catch (error) {
    await apollo.stop()
    throw error
  }
  const { port } = http.address() as AddressInfo
  const host = options.host.includes(':') ? `[${options.host}]` : options.host

  const running = run((shutdown) => serve(http, apollo, inFlight.idle, shutdown), { graceMs: options.graceMs })
  return { ...running, url: `http://${host}:${port}` }
}

async function startApollo(
  http: Server,
  tracker: ReturnType<typeof trackInFlight>['plugin'],
  { introspection, graceMs, logger }: GraphQLServerOptions,
): Promise<ApolloServer<RequestContext>> {
  const apollo = new ApolloServer<RequestContext>({
    typeDefs: await readFile(new URL('../../schema.graphql', import.meta.url), 'utf8'),
    resolvers,
    introspection,
    hideSchemaDetailsFromClientErrors: !introspection,
    csrfPrevention: true,
    allowBatchedHttpRequests: false,
    includeStacktraceInErrorResponses: false,
    persistedQueries: false,
    parseOptions: { maxTokens: MAX_TOKENS },
    formatError: createErrorFormatter(logger),
    stopOnTerminationSignals: false,
    logger: apolloLogger(logger),
    plugins: [
      ApolloServerPluginDrainHttpServer({ httpServer: http, stopGracePeriodMillis: graceMs }),
      // Apollo's own page comes from the network; `explorer.ts` stands in for it.
      ApolloServerPluginLandingPageDisabled(),
      tracker,
      outboxExtension,
    ],
  })
  await apollo.start()
  return apollo
}

function mount(
  app: express.Express,
  apollo: ApolloServer<RequestContext>,
  { db, topicFor, corsOrigins = [], adminUrl = null, logger }: GraphQLServerOptions,
): void {
  app.disable('x-powered-by')
  app.get('/', (_request, response) => {
    response.set('content-security-policy', explorerPolicy).type('html').send(explorerPage(adminUrl))
  })
  // A browser that was sent here wants to see something: without this it is told of a forged request.
  app.get('/graphql', (request, response, next) => {
    response.vary('Accept')
    if (request.accepts(['json', 'html']) === 'html') response.redirect('/')
    else next()
  })
  app.use(
    '/graphql',
    allowOrigins(corsOrigins),
    requireReadableAnswer,
    express.json({ limit: MAX_BODY_BYTES }),
    expressMiddleware(apollo, { context: async () => createContext({ db, topicFor }) }),
  )
  app.use((_request, response) => {
    response.status(404).json(plainError('There is nothing here: the API is at POST /graphql', 'NOT_FOUND'))
  })
  app.use(badRequest(logger))
}

/** Listens until it should stop, then drains. Apollo's plugin closes the listener and idle connections. */
async function serve(
  http: Server,
  apollo: ApolloServer<RequestContext>,
  idle: () => Promise<void>,
  { draining, cancelled }: Shutdown,
): Promise<void> {
  const failed = once(http, 'error', { signal: draining }).then(([error]) => error as Error)
  const failure = await failed.catch(() => null)
  const drained = Promise.all([apollo.stop(), idle()])
  const cut = once(cancelled, 'abort').then(() => {
    http.closeAllConnections()
    throw new Error('Operations were still running at the end of the grace period')
  })
  await Promise.race([drained, cut])
  if (failure) throw failure
}

/** Refuses who reads no answer of ours before anything runs: Apollo asks only when the mutation has committed. */
const requireReadableAnswer: RequestHandler = (request, response, next) => {
  // An empty `Accept` counts as none, as it does to Apollo.
  if (!request.headers.accept || request.accepts(ANSWER_TYPES)) return next()
  const message = 'Accept must allow application/json or application/graphql-response+json; nothing was run'
  response.status(406).json(plainError(message, 'BAD_REQUEST'))
}

/** Answers what goes wrong before GraphQL sees a request: a body that is too large, is no JSON, or was broken off. */
function badRequest(logger: Logger): ErrorRequestHandler {
  return (error: unknown, _request, response, next) => {
    if (response.headersSent) {
      next(error)
      return
    }
    const status = statusOf(error)
    if (status >= 500) logger.error({ error }, 'A request failed before it reached the API')
    const message = status < 500 ? complaintOf(error, status) : 'Something went wrong on our side'
    response.status(status).json(plainError(message, status < 500 ? 'BAD_REQUEST' : 'INTERNAL'))
  }
}

function complaintOf(error: unknown, status: number): string {
  if (status === 413) return `The body must have at most ${MAX_BODY_BYTES} bytes`
  const kind = error instanceof Error && 'type' in error ? error.type : null
  if (kind === 'charset.unsupported') return 'The charset of the body, in Content-Type, must be utf-8, or left out'
  if (kind === 'encoding.unsupported')
    return 'The Content-Encoding of the body must be gzip, deflate or br, or left out'
  return 'The body must be JSON, such as {"query": "…", "variables": {…}}'
}

function statusOf(error: unknown): number {
  const status = error instanceof Error && 'status' in error ? Number(error.status) : 500
  return status >= 400 && status < 600 ? status : 500
}

function plainError(message: string, code: string) {
  return { errors: [{ message, extensions: { code } }] }
}

/** Apollo logs text; it passes on what it says of its own life and never a request. */
function apolloLogger(logger: Logger) {
  return {
    debug: (message: unknown) => logger.debug({}, String(message)),
    info: (message: unknown) => logger.info({}, String(message)),
    warn: (message: unknown) => logger.warn({}, String(message)),
    error: (message: unknown) => logger.error({}, String(message)),
  }
}
