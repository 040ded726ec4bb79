/** Metrics in Prometheus' text format, 0.0.4. Pure. */
import type { Attributes } from '@opentelemetry/api'
import type { HistogramValue, MetricFamily } from './telemetry-merge.ts'

/** The content type of the format. */
export const PROMETHEUS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

const unitSuffixes: Readonly<Record<string, string>> = {
  s: '_seconds',
  ms: '_milliseconds',
  By: '_bytes',
  '1': '_ratio',
}

/** Writes `families`, each with help, type and its series. */
export function writePrometheusText(families: readonly MetricFamily[]): string {
  return families.map(writeFamily).join('')
}

/** What a metric is called in Prometheus: underscores, the unit, `_total` for counters. The same that Prometheus makes of OTLP. */
export function prometheusName({ name, unit, kind }: Pick<MetricFamily, 'name' | 'unit' | 'kind'>): string {
  const plain = name.replaceAll(/[^\w:]/g, '_')
  // A ratio is a gauge's; a counter of plain things has no suffix but its own.
  const suffix = unit === '1' && kind !== 'gauge' ? '' : (unitSuffixes[unit] ?? '')
  const withUnit = plain.endsWith(suffix) ? plain : plain + suffix
  return kind === 'counter' && !withUnit.endsWith('_total') ? `${withUnit}_total` : withUnit
}

function writeFamily(family: MetricFamily): string {
  const name = prometheusName(family)
  const lines = [`# HELP ${name} ${family.description.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`]
  lines.push(`# TYPE ${name} ${family.kind}`)
  for (const { attributes, value } of family.samples) {
    if (typeof value === 'number') lines.push(`${name}${labels(attributes)} ${text(value)}`)
    else lines.push(...histogramLines(name, attributes, value))
  }
  return `${lines.join('\n')}\n`
}

function histogramLines(
  name: string,
  attributes: Attributes,
  { boundaries, counts, count, sum }: HistogramValue,
): string[] {
  let seen = 0
  const buckets = boundaries.map((bound, index) => {
    seen += counts[index] ?? 0
    return `${name}_bucket${labels({ ...attributes, le: text(bound) })} ${seen}`
  })
  return [
    ...buckets,
    `${name}_bucket${labels({ ...attributes, le: '+Inf' })} ${count}`,
    `${name}_sum${labels(attributes)} ${text(sum)}`,
    `${name}_count${labels(attributes)} ${count}`,
  ]
}

function labels(attributes: Attributes): string {
  const pairs = Object.entries(attributes).map(
    ([key, value]) => `${key.replaceAll(/\W/g, '_')}="${quoted(String(value))}"`,
  )
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function quoted(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

function text(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  if (value === Number.NEGATIVE_INFINITY) return '-Inf'
  return String(value)
}
