/** Reads the metrics of what an OTLP exporter sends: `ExportMetricsServiceRequest`, as far as tests look at it. */
import { type Message, messages, read, scalar, text } from './wire.ts'

/** One metric as it was exported, without its points. */
export interface ExportedMetric {
  /** OpenTelemetry's name, with dots. */
  readonly name: string
  readonly unit: string
  /** As Prometheus has it: a sum that may fall is a gauge. */
  readonly kind: 'counter' | 'gauge' | 'histogram'
}

const [GAUGE, SUM, HISTOGRAM] = [5, 7, 9]

/** The metrics of one request's body. */
export function decodeMetrics(body: Buffer): ExportedMetric[] {
  return messages(read(body), 1)
    .flatMap((resourceMetrics) => messages(resourceMetrics, 2))
    .flatMap((scopeMetrics) => messages(scopeMetrics, 2))
    .map((metric) => ({ name: text(metric, 1), unit: text(metric, 3), kind: kindOf(metric) }))
}

function kindOf(metric: Message): ExportedMetric['kind'] {
  const [sum] = messages(metric, SUM)
  if (sum) return scalar(sum, 3) === 1 ? 'counter' : 'gauge'
  if (metric.has(GAUGE)) return 'gauge'
  if (metric.has(HISTOGRAM)) return 'histogram'
  throw new Error(`${text(metric, 1)} is of a kind that is not known here`)
}
