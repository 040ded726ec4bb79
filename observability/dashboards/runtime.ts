import type { Board } from './board.ts'

const J = 'job=~"$job"'

/** What the process needs: HTTP, connections, event loops, memory, and its own telemetry. */
export const runtime: Board = {
  uid: 'outbox-runtime',
  title: 'Outbox / Runtime',
  description: 'HTTP, database pools, event loops, memory, and the telemetry of the telemetry.',
  rows: [
    {
      title: 'Requests and statements',
      panels: [
        {
          title: 'Requests',
          description: 'Requests a second by status. GraphQL answers its errors with 200; see the traces.',
          unit: 'reqps',
          queries: [
            [
              `sum by (http_route, http_response_status_code) (rate(http_server_request_duration_seconds_count{${J}}[$__rate_interval]))`,
              '{{http_route}} {{http_response_status_code}}',
            ],
          ],
        },
        {
          title: 'Request duration',
          description: 'The median and the slowest hundredth.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.5, sum by (le) (rate(http_server_request_duration_seconds_bucket{${J}}[$__rate_interval])))`,
              'median',
            ],
            [
              `histogram_quantile(0.99, sum by (le) (rate(http_server_request_duration_seconds_bucket{${J}}[$__rate_interval])))`,
              '99 %',
            ],
          ],
        },
        {
          title: 'Connections in use',
          description: 'Of each pool in each thread.',
          unit: 'short',
          queries: [
            [
              `max by (instance, thread, db_client_connection_pool_name) (db_client_connection_count{db_client_connection_state="used", ${J}})`,
              '{{instance}} {{thread}} {{db_client_connection_pool_name}}',
            ],
            [
              `max by (db_client_connection_pool_name) (db_client_connection_max{${J}})`,
              'at most {{db_client_connection_pool_name}}',
            ],
          ],
        },
        {
          title: 'Waiting for a connection',
          description: 'Callers that wait. More than none for minutes means slow statements or too small a pool.',
          unit: 'short',
          alerts: ['OutboxDbPoolSaturated'],
          queries: [
            [
              `max by (instance, thread, db_client_connection_pool_name) (db_client_connection_pending_requests{${J}})`,
              '{{instance}} {{thread}} {{db_client_connection_pool_name}}',
            ],
          ],
        },
        {
          title: 'Statement duration',
          description: 'The slowest hundredth, by operation.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.99, sum by (le, db_operation_name) (rate(db_client_operation_duration_seconds_bucket{${J}}[$__rate_interval])))`,
              '{{db_operation_name}}',
            ],
          ],
        },
        {
          title: 'Produce requests',
          description: 'From the call to the broker’s answer: the slowest hundredth.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.99, sum by (le, messaging_destination_name) (rate(messaging_client_operation_duration_seconds_bucket{${J}}[$__rate_interval])))`,
              '{{messaging_destination_name}}',
            ],
          ],
        },
      ],
    },
    {
      title: 'Threads',
      panels: [
        {
          title: 'Event loop delay',
          description: 'One in a hundred turns comes this late, or later. A relay loses its lanes at 5 s.',
          unit: 's',
          alerts: ['OutboxEventLoopDelayHigh'],
          queries: [
            [`max by (instance, thread) (nodejs_eventloop_delay_p99_seconds{${J}})`, '{{instance}} {{thread}}'],
          ],
        },
        {
          title: 'Event loop utilization',
          description: 'Share of the time that each thread is busy. At 1 it can do no more.',
          unit: 'percentunit',
          queries: [
            [`max by (instance, thread) (nodejs_eventloop_utilization_ratio{${J}})`, '{{instance}} {{thread}}'],
          ],
        },
        {
          title: 'Processor',
          description: 'Cores in use by the process, all threads together.',
          unit: 'short',
          queries: [
            [`sum by (instance) (rate(process_cpu_time_seconds_total{${J}}[$__rate_interval]))`, '{{instance}}'],
          ],
        },
        {
          title: 'Memory',
          description: 'Resident memory of the process, and the heap of each thread.',
          unit: 'bytes',
          queries: [
            [`max by (instance) (process_memory_usage_bytes{${J}})`, '{{instance}} resident'],
            [`sum by (instance, thread) (v8js_memory_heap_used_bytes{${J}})`, '{{instance}} {{thread}} heap'],
          ],
        },
        {
          title: 'Garbage collection',
          description: 'Share of the time that each thread stands still for it.',
          unit: 'percentunit',
          queries: [
            [
              `sum by (instance, thread) (rate(v8js_gc_duration_seconds_sum{${J}}[$__rate_interval]))`,
              '{{instance}} {{thread}}',
            ],
          ],
        },
        {
          title: 'Uptime',
          description: 'Since the process started.',
          unit: 's',
          queries: [[`max by (instance) (process_uptime_seconds{${J}})`, '{{instance}}']],
        },
      ],
    },
    {
      title: 'Telemetry',
      panels: [
        {
          title: 'Spans',
          description: 'Spans handed to the exporter a second, by what became of them.',
          unit: 'short',
          alerts: ['OutboxSpansDropped'],
          queries: [
            [
              `sum by (error_type) (rate(otel_sdk_processor_span_processed_total{${J}}[$__rate_interval]))`,
              '{{error_type}}',
            ],
          ],
        },
        {
          title: 'Span queue',
          description: 'How full each thread’s queue is. At 1 spans are dropped.',
          unit: 'percentunit',
          queries: [
            [
              `max by (instance, thread) (otel_sdk_processor_span_queue_size{${J}} / otel_sdk_processor_span_queue_capacity{${J}})`,
              '{{instance}} {{thread}}',
            ],
          ],
        },
      ],
    },
  ],
}
