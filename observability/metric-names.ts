/** What may be asked of Prometheus: every metric's name and labels, from the one catalogue and the list of foreign ones. */
import { catalogue } from '../src/messaging/telemetry/catalogue.ts'
import { serviceCatalogue } from '../src/service/telemetry-gauges.ts'
import { prometheusName } from '../src/service/telemetry-prometheus.ts'
import { type ForeignMetric, foreignMetrics } from './foreign-metrics.ts'

/** A metric as Prometheus and the documentation know it. */
export interface KnownMetric extends ForeignMetric {
  /** Its name in Prometheus. */
  readonly prometheus: string
  readonly description: string
}

const ours = [...Object.values(catalogue), ...Object.values(serviceCatalogue)].map((metric) => ({
  ...metric,
  kind: kindOf(metric.kind),
}))

/** Ours first, in the order of the catalogue. */
export const knownMetrics: readonly KnownMetric[] = [
  ...ours,
  ...foreignMetrics.map((metric) => ({ ...metric, description: '' })),
].map((metric) => ({ ...metric, prometheus: prometheusName(metric) }))

function kindOf(kind: string): ForeignMetric['kind'] {
  if (kind.endsWith('ounter')) return 'counter'
  return kind === 'histogram' ? 'histogram' : 'gauge'
}

/** Names that an expression may use: a histogram's parts in place of itself. */
export function queryableNames(): Set<string> {
  return new Set(
    knownMetrics.flatMap(({ kind, prometheus }) =>
      kind === 'histogram' ? ['_bucket', '_sum', '_count'].map((part) => prometheus + part) : [prometheus],
    ),
  )
}

/** Labels that an expression may use: the attributes', and those that Prometheus adds. */
export function queryableLabels(): Set<string> {
  const attributes = knownMetrics.flatMap((metric) => metric.attributes.map((name) => name.replaceAll(/\W/g, '_')))
  return new Set([...attributes, 'job', 'instance', 'thread', 'le'])
}
