/**
 * Metrics that dashboards and alerts use and that others make: the SDK and the
 * instrumentations. Held to what the running service really shows.
 */

/** What a rule or a panel needs to know of a metric. */
export interface ForeignMetric {
  /** OpenTelemetry's name. */
  readonly name: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly attributes: readonly string[]
}

export const foreignMetrics: readonly ForeignMetric[] = [
  {
    name: 'http.server.request.duration',
    kind: 'histogram',
    unit: 's',
    attributes: ['http.request.method', 'http.route', 'http.response.status_code', 'error.type'],
  },
  {
    name: 'db.client.operation.duration',
    kind: 'histogram',
    unit: 's',
    attributes: ['db.system.name', 'db.namespace', 'db.operation.name', 'error.type'],
  },
  { name: 'nodejs.eventloop.delay.p99', kind: 'gauge', unit: 's', attributes: ['thread'] },
  { name: 'nodejs.eventloop.utilization', kind: 'gauge', unit: '1', attributes: ['thread'] },
  { name: 'v8js.gc.duration', kind: 'histogram', unit: 's', attributes: ['v8js.gc.type', 'thread'] },
  {
    name: 'v8js.memory.heap.used',
    kind: 'gauge',
    unit: 'By',
    attributes: ['v8js.heap.space.name', 'thread'],
  },
  {
    name: 'otel.sdk.processor.span.processed',
    kind: 'counter',
    unit: '{span}',
    attributes: ['otel.component.type', 'otel.component.name', 'error.type', 'thread'],
  },
  {
    name: 'otel.sdk.processor.span.queue.size',
    kind: 'gauge',
    unit: '{span}',
    attributes: ['otel.component.type', 'otel.component.name', 'thread'],
  },
  {
    name: 'otel.sdk.processor.span.queue.capacity',
    kind: 'gauge',
    unit: '{span}',
    attributes: ['otel.component.type', 'otel.component.name', 'thread'],
  },
  { name: 'service.thread.up', kind: 'gauge', unit: '', attributes: ['thread'] },
]
