/**
 * The library's instruments, made from the catalogue.
 *
 * Functions and not constants: the API has a proxy for tracers and none for
 * meters, so an instrument made before the SDK has registered its meter
 * provider records nothing, ever.
 */
import { type Counter, type Gauge, type Histogram, type Meter, metrics, type ObservableGauge } from '@opentelemetry/api'
import { catalogue, type InstrumentName, type MetricDefinition } from './catalogue.ts'

interface InstrumentOf {
  readonly counter: Counter
  readonly gauge: Gauge
  readonly observableGauge: ObservableGauge
  readonly histogram: Histogram
}

/** Every instrument by its name in the catalogue. Give attributes by the constants of `attributes.ts`. */
export type Instruments = {
  readonly [Name in InstrumentName]: InstrumentOf[(typeof catalogue)[Name]['kind']]
}

/** Makes every instrument of the library. Call it after the SDK has registered. */
export function createInstruments(meter: Meter = metrics.getMeter('graphql-outbox')): Instruments {
  const made = Object.entries(catalogue).map(([name, definition]) => [name, createInstrument(meter, definition)])
  return Object.fromEntries(made) as Instruments
}

let shared: Instruments | undefined

/** This thread's instruments, made at the first call. */
export function getInstruments(): Instruments {
  shared ??= createInstruments()
  return shared
}

function createInstrument(meter: Meter, { name, kind, unit, description, buckets }: MetricDefinition) {
  switch (kind) {
    case 'counter':
      return meter.createCounter(name, { unit, description })
    case 'gauge':
      return meter.createGauge(name, { unit, description })
    case 'observableGauge':
      return meter.createObservableGauge(name, { unit, description })
    case 'histogram':
      return meter.createHistogram(name, {
        unit,
        description,
        ...(buckets ? { advice: { explicitBucketBoundaries: [...buckets] } } : {}),
      })
  }
}
