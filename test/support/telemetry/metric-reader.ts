/** Metrics of this process, read when a test asks. */
import { metrics } from '@opentelemetry/api'
import { type DataPoint, MeterProvider, type MetricData, MetricReader } from '@opentelemetry/sdk-metrics'

class ReaderOnDemand extends MetricReader {
  protected override async onShutdown(): Promise<void> {}
  protected override async onForceFlush(): Promise<void> {}
}

/** Makes the SDK the global one; what it returns resolves to all metrics. Once in a test file, at its top. */
export function readAllMetrics(): () => Promise<readonly MetricData[]> {
  const reader = new ReaderOnDemand()
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))
  return async () => (await reader.collect()).resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
}

/** The same for the points of one metric. */
export function readMetrics(): (name: string) => Promise<readonly DataPoint<unknown>[]> {
  const collect = readAllMetrics()
  return async (name) =>
    (await collect()).flatMap(({ descriptor, dataPoints }): readonly DataPoint<unknown>[] =>
      descriptor.name === name ? dataPoints : [],
    )
}
