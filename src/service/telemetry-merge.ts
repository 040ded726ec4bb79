/**
 * A thread's metrics as plain data, and those of several threads as one set. Pure.
 *
 * Counters and histograms add up; of two gauges with the same labels the higher
 * stands. What describes a thread itself keeps the thread as a label.
 */
import type { Attributes } from '@opentelemetry/api'
import { DataPointType, type MetricData } from '@opentelemetry/sdk-metrics'

/** One series. */
export interface Sample {
  readonly attributes: Attributes
  readonly value: number | HistogramValue
}

/** A histogram's state; `counts` has one entry more than `boundaries`. */
export interface HistogramValue {
  readonly boundaries: readonly number[]
  readonly counts: readonly number[]
  readonly count: number
  readonly sum: number
}

/** One metric with all of its series. Plain data: it can be cloned to another thread. */
export interface MetricFamily {
  /** OpenTelemetry's name, with dots. */
  readonly name: string
  readonly unit: string
  readonly description: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  readonly samples: readonly Sample[]
}

/** What describes a thread rather than the work that threads share. */
const PER_THREAD = /^(?:nodejs|v8js|otel|db\.client\.connection)\./

/** The metrics that thread `instance` has collected. */
export function toFamilies(metrics: readonly MetricData[], instance: string): MetricFamily[] {
  return metrics.flatMap((metric) => {
    const { name, unit, description } = metric.descriptor
    const kind = kindOf(metric)
    if (kind === null) return []
    const thread = PER_THREAD.test(name) ? { thread: instance } : {}
    return [{ name, unit, description, kind, samples: samplesOf(metric, thread) }]
  })
}

/** All of `sets` as one, by name. Of two kinds under one name the first stands: they cannot be shown as one. */
export function mergeFamilies(sets: readonly (readonly MetricFamily[])[]): MetricFamily[] {
  const merged = new Map<string, { family: MetricFamily; samples: Map<string, Sample> }>()
  for (const family of sets.flat()) {
    const entry = merged.get(family.name) ?? { family, samples: new Map<string, Sample>() }
    if (entry.family.kind !== family.kind) continue
    merged.set(family.name, entry)
    for (const sample of family.samples) {
      const key = seriesKey(sample.attributes)
      const other = entry.samples.get(key)
      entry.samples.set(key, other ? { ...sample, value: combine(family.kind, other.value, sample.value) } : sample)
    }
  }
  return [...merged.values()]
    .map(({ family, samples }) => ({ ...family, samples: [...samples.values()] }))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** What outlives a thread: its counts. */
export function withoutGauges(families: readonly MetricFamily[]): MetricFamily[] {
  return families.filter(({ kind }) => kind !== 'gauge')
}

function kindOf(metric: MetricData): MetricFamily['kind'] | null {
  switch (metric.dataPointType) {
    case DataPointType.SUM:
      return metric.isMonotonic ? 'counter' : 'gauge'
    case DataPointType.GAUGE:
      return 'gauge'
    case DataPointType.HISTOGRAM:
      return 'histogram'
    case DataPointType.EXPONENTIAL_HISTOGRAM:
      return null
  }
}

function samplesOf(metric: MetricData, thread: Attributes): Sample[] {
  switch (metric.dataPointType) {
    case DataPointType.SUM:
    case DataPointType.GAUGE:
      return metric.dataPoints.map(({ attributes, value }) => ({ attributes: { ...attributes, ...thread }, value }))
    case DataPointType.HISTOGRAM:
      return metric.dataPoints.map(({ attributes, value: { buckets, count, sum } }) => ({
        attributes: { ...attributes, ...thread },
        value: { boundaries: [...buckets.boundaries], counts: [...buckets.counts], count, sum: sum ?? 0 },
      }))
    case DataPointType.EXPONENTIAL_HISTOGRAM:
      return []
  }
}

function combine(kind: MetricFamily['kind'], a: Sample['value'], b: Sample['value']): Sample['value'] {
  if (typeof a === 'number' && typeof b === 'number') return kind === 'gauge' ? Math.max(a, b) : a + b
  if (typeof a === 'number' || typeof b === 'number') return a
  return {
    boundaries: a.boundaries,
    counts: a.counts.map((count, index) => count + (b.counts[index] ?? 0)),
    count: a.count + b.count,
    sum: a.sum + b.sum,
  }
}

function seriesKey(attributes: Attributes): string {
  return JSON.stringify(Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : 1)))
}
