/**
 * Telemetry's own settings: OpenTelemetry's standard variables and some of ours.
 *
 * Apart from config.ts since the preload needs them in every thread, before the
 * rest of the service is loaded. A value that cannot be used is reported and
 * ignored, as the standard asks: telemetry never stops the service.
 */
import type { TelemetryIdentity } from './telemetry-identity.ts'

/** How telemetry behaves in this process. */
export interface TelemetryConfig {
  /** `OTEL_SDK_DISABLED`. @defaultValue false */
  readonly disabled: boolean
  /** The main thread's service name: that of the first of `ROLES`. */
  readonly mainServiceName: TelemetryIdentity['serviceName']
  /** `OUTBOX_NAME`: tells this outbox from others in metrics and spans. @defaultValue `orders` */
  readonly outboxName: string
  /** Whether spans are exported: an endpoint is set and `OTEL_TRACES_EXPORTER` is not `none`. */
  readonly exportsTraces: boolean
  /** Whether metrics are also pushed: `OTEL_METRICS_EXPORTER=otlp`. They are always at /metrics. @defaultValue false */
  readonly exportsMetrics: boolean
  /** Milliseconds between two pushes of metrics, `OTEL_METRIC_EXPORT_INTERVAL`. @defaultValue 60_000 */
  readonly metricIntervalMs: number
  readonly sampler: SamplerConfig
  /** Share of batches that get a trace of their own, 0 to 1, `OUTBOX_TRACES_BATCH_RATIO`. @defaultValue 0.001 */
  readonly batchRatio: number
  /** Whether a trace shows as a span how long its event waited, `OUTBOX_TRACES_WAIT`. @defaultValue false */
  readonly waitSpans: boolean
  readonly batch: SpanBatchConfig
  /** What was ignored, one sentence each. */
  readonly problems: readonly string[]
}

/** `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`. */
export interface SamplerConfig {
  /** Whether a parent's decision is followed. @defaultValue true */
  readonly parentBased: boolean
  /** Share of new traces that are recorded, 0 to 1. @defaultValue 1 */
  readonly ratio: number
}

/** `OTEL_BSP_*`. */
export interface SpanBatchConfig {
  /**
   * Spans of a thread that wait at most; later ones are dropped, counted and
   * told. Holds those of 20,000 events at once, of which a consumer makes
   * 40,000, also while the collector stands still. More bridges longer bursts
   * and outages, at about 1.3 kB a span.
   * @defaultValue 65_536
   */
  readonly maxQueueSize: number
  /** @defaultValue 2_048 */
  readonly maxExportBatchSize: number
  /** Milliseconds; also what a crash can lose. @defaultValue 1_000 */
  readonly scheduledDelayMillis: number
  /** Milliseconds. @defaultValue 10_000 */
  readonly exportTimeoutMillis: number
}

const serviceNames = {
  api: 'orders-api',
  relay: 'outbox-relay',
  consumer: 'orders-summary',
} as const

/** Reads the settings from `env`. Never throws. */
export function readTelemetryConfig(env: NodeJS.ProcessEnv = process.env): TelemetryConfig {
  const problems: string[] = []
  const number = (name: string, fallback: number) => {
    const text = env[name]
    if (!text) return fallback
    const value = Number(text)
    if (Number.isSafeInteger(value) && value > 0) return value
    problems.push(`${name} must be a positive whole number; it is ignored`)
    return fallback
  }
  const maxQueueSize = number('OTEL_BSP_MAX_QUEUE_SIZE', 65_536)
  return {
    disabled: env.OTEL_SDK_DISABLED?.toLowerCase() === 'true',
    mainServiceName: mainServiceName(env.ROLES),
    outboxName: env.OUTBOX_NAME || 'orders',
    exportsTraces:
      Boolean(env.OTEL_EXPORTER_OTLP_ENDPOINT || env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) &&
      env.OTEL_TRACES_EXPORTER !== 'none',
    exportsMetrics: env.OTEL_METRICS_EXPORTER?.split(',').includes('otlp') ?? false,
    metricIntervalMs: number('OTEL_METRIC_EXPORT_INTERVAL', 60_000),
    sampler: readSampler(env, problems),
    batchRatio: readShare('OUTBOX_TRACES_BATCH_RATIO', env, problems) ?? 0.001,
    waitSpans: readFlag('OUTBOX_TRACES_WAIT', env, problems),
    batch: {
      maxQueueSize,
      maxExportBatchSize: Math.min(maxQueueSize, number('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 2_048)),
      scheduledDelayMillis: number('OTEL_BSP_SCHEDULE_DELAY', 1_000),
      exportTimeoutMillis: number('OTEL_BSP_EXPORT_TIMEOUT', 10_000),
    },
    problems,
  }
}

function readFlag(name: string, env: NodeJS.ProcessEnv, problems: string[]): boolean {
  const text = env[name]?.toLowerCase() || 'false'
  if (text !== 'true' && text !== 'false') problems.push(`${name} must be true or false; it is ignored`)
  return text === 'true'
}

function mainServiceName(roles: string | undefined): TelemetryIdentity['serviceName'] {
  const given = (roles ?? 'api').split(',').map((role) => role.trim())
  const first = (['api', 'relay', 'consumer'] as const).find((role) => given.includes(role))
  return serviceNames[first ?? 'api']
}

function readSampler(env: NodeJS.ProcessEnv, problems: string[]): SamplerConfig {
  const name = env.OTEL_TRACES_SAMPLER || 'parentbased_always_on'
  const parentBased = name.startsWith('parentbased_')
  switch (name.replace('parentbased_', '')) {
    case 'always_on':
      return { parentBased, ratio: 1 }
    case 'always_off':
      return { parentBased, ratio: 0 }
    case 'traceidratio':
      return { parentBased, ratio: readShare('OTEL_TRACES_SAMPLER_ARG', env, problems) ?? 1 }
    default:
      problems.push('OTEL_TRACES_SAMPLER is not one of the standard samplers; every trace is recorded')
      return { parentBased: true, ratio: 1 }
  }
}

/** `null` for what is not set or cannot be used. */
function readShare(name: string, env: NodeJS.ProcessEnv, problems: string[]): number | null {
  const text = env[name]
  if (!text) return null
  const share = Number(text)
  if (share >= 0 && share <= 1) return share
  problems.push(`${name} must be a number from 0 to 1; it is ignored`)
  return null
}
