/** Which attributes the instrumentations' metrics keep: those of a bounded set of values. The library's own are bounded by construction. */
import { AggregationType, createAllowListAttributesProcessor, type ViewOptions } from '@opentelemetry/sdk-metrics'

/** The views of every thread's meter provider. */
export const views: readonly ViewOptions[] = [
  keep('http.server.request.duration', [
    'http.request.method',
    'http.route',
    'http.response.status_code',
    'error.type',
  ]),
  keep('db.client.operation.duration', ['db.system.name', 'db.namespace', 'db.operation.name', 'error.type']),
  // Only the exporter itself calls out.
  { instrumentName: 'http.client.request.duration', aggregation: { type: AggregationType.DROP } },
]

function keep(instrumentName: string, attributes: string[]): ViewOptions {
  return { instrumentName, attributesProcessors: [createAllowListAttributesProcessor(attributes)] }
}
