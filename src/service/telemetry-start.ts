/**
 * Builds this thread's SDK: hooks first, then the providers, so that what is
 * loaded afterwards is patched.
 *
 * Everything is given to NodeSDK, nothing left to it: what it is not given it
 * makes of the environment, and would export metrics and logs that nobody asked
 * for.
 */

import { arch, hostname } from 'node:os'
import { isMainThread } from 'node:worker_threads'
import { DiagLogLevel, diag, metrics } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import {
  defaultResource,
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { type IMetricReader, MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics'
import { NodeSDK } from '@opentelemetry/sdk-node'
import { BatchSpanProcessor, NoopSpanProcessor, type SpanProcessor } from '@opentelemetry/sdk-trace'
import { ATTR_SERVICE_INSTANCE_ID, ATTR_SERVICE_NAME } from '@opentelemetry/semantic-conventions'
import { register } from 'import-in-the-middle/register-hooks.mjs'
import type { TelemetryConfig } from './telemetry-config.ts'
import { observeProcess } from './telemetry-gauges.ts'
import { publishTelemetry } from './telemetry-handle.ts'
import type { TelemetryIdentity } from './telemetry-identity.ts'
import { createInstrumentations, instrumentedModules, unpatchedModules } from './telemetry-instrumentations.ts'
import { MainMetrics } from './telemetry-metrics.ts'
import { TelemetryProblems } from './telemetry-problems.ts'
import { createSampler } from './telemetry-sampler.ts'
import { withoutSecrets } from './telemetry-secrets.ts'
import { statementNames } from './telemetry-statements.ts'
import { createThreadReader } from './telemetry-threads.ts'
import { views } from './telemetry-views.ts'

/**
 * Milliseconds that the last export may take: a collector that is away must not
 * hold up a stop. Threads end one after another, within the grace of the whole.
 */
const SHUTDOWN_MS = isMainThread ? 3_000 : 2_000

const ATTR_HOST_NAME = 'host.name'
const ATTR_HOST_ARCH = 'host.arch'

/** Starts telemetry in this thread and publishes its handle. */
export function startTelemetry(config: TelemetryConfig, identity: TelemetryIdentity): void {
  const problems = new TelemetryProblems()
  for (const problem of config.problems) problems.report(problem)

  // One kind of hook, in each thread: a second kind beside it makes both silent.
  register({ include: [...instrumentedModules] })

  const resource = createResource(identity)
  const main = isMainThread ? new MainMetrics(identity.instance) : null
  const readers: IMetricReader[] = [main ? main.reader : createThreadReader(identity.instance)]
  if (config.exportsMetrics) readers.push(createPushReader(config))
  // Ours and not the SDK's, which comes too late: the span processor counts into it from the start what it drops.
  const meterProvider = new MeterProvider({ resource, views: [...views], readers })
  metrics.setGlobalMeterProvider(meterProvider)

  const instrumentations = createInstrumentations()
  const sdk = new NodeSDK({
    resource,
    autoDetectResources: false,
    contextManager: new AsyncLocalStorageContextManager(),
    textMapPropagator: new W3CTraceContextPropagator(),
    sampler: createSampler(config.sampler),
    spanProcessors: createSpanProcessors(config, meterProvider),
    metricReaders: [],
    logRecordProcessors: [],

    instrumentations,
  })
  // After the SDK's constructor, which makes the console its logger where OTEL_LOG_LEVEL is set.
  diag.setLogger(problems.logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true })
  sdk.start()

  if (main) observeProcess()

  let stopping: Promise<void> | undefined
  publishTelemetry({
    collectMetrics: async () => (main ? await main.collect() : ''),
    unpatchedModules: (expected) => unpatchedModules(instrumentations, expected),
    onProblem: (listener) => problems.listen(listener),
    shutdown: () => {
      stopping ??= shutdown([sdk, meterProvider], problems)
      return stopping
    },
  })
}

function createResource({ serviceName, instance }: TelemetryIdentity): Resource {
  // Other detectors would tell command lines and users, and find some of it out too late for the first spans.
  const given = detectResources({ detectors: [envDetector] })
  const host = { [ATTR_HOST_NAME]: hostname(), [ATTR_HOST_ARCH]: arch() }
  const process = given.attributes[ATTR_SERVICE_INSTANCE_ID] ?? hostname()
  return defaultResource()
    .merge(resourceFromAttributes(host))
    .merge(given)
    .merge(
      resourceFromAttributes({
        [ATTR_SERVICE_NAME]: serviceName,
        // The same after a restart: a random one makes every series new.
        [ATTR_SERVICE_INSTANCE_ID]: `${process}/${instance}`,
      }),
    )
}

function createSpanProcessors({ exportsTraces, batch }: TelemetryConfig, meters: MeterProvider): SpanProcessor[] {
  // With an empty list there is no provider, and so neither ids that travel nor any for the logs.
  if (!exportsTraces) return [new NoopSpanProcessor()]
  // A stop sends the whole queue at once, beside the batch that is on its way; what is above this limit would be lost.
  const concurrencyLimit = Math.ceil(batch.maxQueueSize / batch.maxExportBatchSize) + 1
  const exporter = new OTLPTraceExporter({ concurrencyLimit })
  return [statementNames, withoutSecrets, new BatchSpanProcessor({ ...batch, exporter, selfObsMeterProvider: meters })]
}

function createPushReader({ metricIntervalMs }: TelemetryConfig): IMetricReader {
  return new PeriodicExportingMetricReader({
    exporter: new OTLPMetricExporter(),
    exportIntervalMillis: metricIntervalMs,
    exportTimeoutMillis: Math.min(metricIntervalMs, 10_000),
  })
}

/** Flushes and ends, within a bound and without failing: nothing that is being stopped depends on it. */
async function shutdown(parts: readonly { shutdown(): Promise<void> }[], problems: TelemetryProblems): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<'late'>()
  const timer = setTimeout(resolve, SHUTDOWN_MS, 'late')
  const ended = Promise.allSettled(parts.map((part) => part.shutdown()))
  if ((await Promise.race([ended, late])) === 'late') {
    problems.report(`Telemetry: the last export did not end within ${SHUTDOWN_MS} ms and was given up`)
  }
  clearTimeout(timer)
}
