/** Who a thread is in traces and metrics. Given to a worker as `workerData.telemetry`. */
export interface TelemetryIdentity {
  /** One name per role: orders-api, outbox-relay, orders-summary. */
  readonly serviceName: 'orders-api' | 'outbox-relay' | 'orders-summary'
  /** Which thread of this process, the same after a restart: main, relay-0, consumer. */
  readonly instance: string
}
