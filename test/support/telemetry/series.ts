/** The library's series by short names, for tests that know what each should say. */
import type { Attributes } from '@opentelemetry/api'
import { DataPointType, type MetricData } from '@opentelemetry/sdk-metrics'
import { catalogue } from '../../../src/messaging/telemetry/catalogue.ts'
import { readAllMetrics } from './metric-reader.ts'

/** One series: a counter's or gauge's value, or a histogram's count. */
interface Series {
  readonly name: string
  readonly attributes: Attributes
  readonly value: number
}

/** What all of a test's series have alike: its outbox, its group, its one partition. */
const ALIKE = [
  'outbox.name',
  'messaging.system',
  'messaging.operation.name',
  'messaging.consumer.group.name',
  'messaging.destination.partition.id',
]

export interface Reading {
  /** By name, and by what tells the series of one metric from each other: `outbox.relay.retries error.type=X`. */
  readonly values: Readonly<Record<string, number>>
  /** Series with an attribute that the catalogue does not have, or without one that it has. */
  readonly odd: readonly Series[]
}

/** Makes the SDK the global one; what it returns resolves to what it has. Once in a test file, at its top. `topic` is left out of the names. */
export function readSeries(topic: string): () => Promise<Reading> {
  const collect = readAllMetrics()
  return async () => {
    const series = (await collect()).flatMap(seriesOf)
    return {
      values: Object.fromEntries(series.map((each) => [nameOf(each, topic), each.value])),
      odd: series.filter(isOdd),
    }
  }
}

function seriesOf(metric: MetricData): Series[] {
  const { name } = metric.descriptor
  switch (metric.dataPointType) {
    case DataPointType.SUM:
    case DataPointType.GAUGE:
      return metric.dataPoints.map(({ attributes, value }) => ({ name, attributes, value }))
    case DataPointType.HISTOGRAM:
    case DataPointType.EXPONENTIAL_HISTOGRAM:
      return metric.dataPoints.map(({ attributes, value }) => ({ name, attributes, value: value.count }))
  }
}

function nameOf({ name, attributes }: Series, topic: string): string {
  const told = Object.entries(attributes).filter(([attribute, said]) => !ALIKE.includes(attribute) && said !== topic)
  return [name, ...told.map(([attribute, said]) => `${attribute}=${said}`)].join(' ')
}

/** `error.type` is there with errors alone. */
function isOdd({ name, attributes }: Series): boolean {
  const known = Object.values(catalogue).find((metric) => metric.name === name)
  const sorted = (names: readonly string[]) => names.filter((each) => each !== 'error.type').sort()
  return sorted(known?.attributes ?? []).join() !== sorted(Object.keys(attributes)).join()
}
