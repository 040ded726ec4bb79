/**
 * What is instrumented, and how. The messaging spans are the library's own:
 * the Kafka client's instrumentation would overwrite the stored trace context.
 */
import { SpanStatusCode } from '@opentelemetry/api'
import type { Instrumentation, InstrumentationModuleDefinition } from '@opentelemetry/instrumentation'
import { ExpressInstrumentation, ExpressLayerType } from '@opentelemetry/instrumentation-express'
import { GraphQLInstrumentation } from '@opentelemetry/instrumentation-graphql'
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http'
import { KnexInstrumentation } from '@opentelemetry/instrumentation-knex'
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg'
import { RuntimeNodeInstrumentation } from '@opentelemetry/instrumentation-runtime-node'
import { READ_LENGTH } from './telemetry-statements.ts'

/** The modules that the loader hooks let the instrumentations patch; all others load untouched. */
export const instrumentedModules = ['http', 'https', 'graphql', 'express', 'knex', 'pg'] as const

const PROBES = /^\/(?:metrics|livez|readyz)\b/

/** Makes the instrumentations of one thread. */
export function createInstrumentations(): Instrumentation[] {
  return [
    new HttpInstrumentation({
      ignoreIncomingRequestHook: ({ url }) => PROBES.test(url ?? ''),
      requireParentforOutgoingSpans: true,
    }),
    // For the route alone; without it the root span is called POST.
    new ExpressInstrumentation({
      ignoreLayersType: [ExpressLayerType.MIDDLEWARE, ExpressLayerType.ROUTER, ExpressLayerType.REQUEST_HANDLER],
    }),
    new GraphQLInstrumentation({
      // With resolver spans, a row's parent would be a resolver.
      ignoreResolveSpans: true,
      mergeItems: true,
      // An error is a 200 with `errors`: without this the trace looks well.
      responseHook: (span, { errors }) => {
        if (errors?.length) span.setStatus({ code: SpanStatusCode.ERROR })
      },
    }),
    new KnexInstrumentation({ maxQueryLength: READ_LENGTH }),
    new PgInstrumentation({ ignoreConnectSpans: true, enhancedDatabaseReporting: false }),
    // Milliseconds: each tick wakes an idle thread.
    new RuntimeNodeInstrumentation({ monitoringPrecision: 50 }),
  ]
}

/**
 * Which of `expected` were not patched though the thread should have loaded
 * them by now: a bundler, a second copy or a wrong start command.
 */
export function unpatchedModules(instrumentations: readonly Instrumentation[], expected: readonly string[]): string[] {
  const patched = new Set(
    instrumentations
      .flatMap(moduleDefinitions)
      .filter(({ moduleExports, files }) => moduleExports || files.some((file) => file.moduleExports))
      .map(({ name }) => name),
  )
  return expected.filter((name) => !patched.has(name))
}

/** What an instrumentation has patched stands in a field that its interface does not show. */
function moduleDefinitions(instrumentation: Instrumentation): InstrumentationModuleDefinition[] {
  return (instrumentation as { _modules?: InstrumentationModuleDefinition[] })._modules ?? []
}
