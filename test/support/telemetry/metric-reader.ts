/** Metrics of this process, read when a test asks. */
import { metrics } from '@opentelemetry/api'
import { type DataPoint, MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'

class ReaderOnDemand extends MetricReader {
  protected override async onShutdown(): Promise<void> {}
  protected override async onForceFlush(): Promise<void> {}
}

/** Makes the SDK the global one; what it returns resolves to the points of one metric. Once in a test file, at its top. */
export function readMetrics(): (name: string) => Promise<readonly DataPoint<unknown>[]> {
  const reader = new ReaderOnDemand()
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }))
  return async (name) => {
    const { resourceMetrics } = await reader.collect()
    const found = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics)
    return found.flatMap(({ descriptor, dataPoints }): readonly DataPoint<unknown>[] =>
      descriptor.name === name ? dataPoints : [],
    )
  }
}
