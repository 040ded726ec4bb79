import type { Board } from './board.ts'

const J = 'job=~"$job"'

/** The consumers: what became of each delivery, how late, and what the inbox remembers. */
export const consumers: Board = {
  uid: 'outbox-consumers',
  title: 'Outbox / Consumers',
  description: 'Deliveries, their outcome and delay, lag, and the memory that makes effects happen once.',
  rows: [
    {
      title: 'Deliveries',
      panels: [
        {
          title: 'Deliveries by result',
          description:
            'Processed is the good one. Duplicates are dropped; retries come back; dead-lettered ones were given up.',
          unit: 'short',
          alerts: ['OutboxDedupeNotRunning'],
          queries: [
            [
              `sum by (messaging_consumer_group_name, outbox_result) (rate(outbox_consumer_processed_messages_total{${J}}[$__rate_interval]))`,
              '{{messaging_consumer_group_name}} {{outbox_result}}',
            ],
          ],
        },
        {
          title: 'Delivery delay',
          description:
            'From the creation of the row to the commit of its effect: the median and the slowest hundredth.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.5, sum by (le, messaging_consumer_group_name) (rate(outbox_consumer_delivery_delay_seconds_bucket{${J}}[$__rate_interval])))`,
              '{{messaging_consumer_group_name}} median',
            ],
            [
              `histogram_quantile(0.99, sum by (le, messaging_consumer_group_name) (rate(outbox_consumer_delivery_delay_seconds_bucket{${J}}[$__rate_interval])))`,
              '{{messaging_consumer_group_name}} 99 %',
            ],
          ],
        },
        {
          title: 'Lag',
          description: 'Records before each group, as its client last heard. It freezes with a client that is stuck.',
          unit: 'short',
          alerts: ['OutboxConsumerLagGrowing'],
          queries: [
            [
              `sum by (messaging_consumer_group_name, messaging_destination_name) (outbox_consumer_lag{${J}})`,
              '{{messaging_consumer_group_name}} {{messaging_destination_name}}',
            ],
          ],
        },
        {
          title: 'Transaction duration',
          description: 'One transaction of a consumer, for one event or a batch: the slowest hundredth.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.99, sum by (le, messaging_consumer_group_name) (rate(messaging_process_duration_seconds_bucket{${J}}[$__rate_interval])))`,
              '{{messaging_consumer_group_name}}',
            ],
          ],
        },
      ],
    },
    {
      title: 'Trouble',
      panels: [
        {
          title: 'Duplicates',
          description:
            'Share of deliveries that had been processed before. Some come with every restart of a relay or a group.',
          unit: 'percentunit',
          alerts: ['OutboxDuplicateRatioHigh'],
          queries: [
            [
              `sum by (messaging_consumer_group_name) (rate(outbox_consumer_processed_messages_total{outbox_result="duplicate", ${J}}[$__rate_interval])) / sum by (messaging_consumer_group_name) (rate(outbox_consumer_processed_messages_total{${J}}[$__rate_interval]))`,
              '{{messaging_consumer_group_name}}',
            ],
          ],
        },
        {
          title: 'Given up',
          description: 'Events set aside as dead letters, by reason.',
          unit: 'short',
          alerts: ['OutboxDeadLettered'],
          queries: [
            [
              // The first of its kind makes its series appear, at 1, which is no increase.
              `sum by (messaging_destination_name, error_type) ((outbox_dead_lettered_messages_total{${J}} unless outbox_dead_lettered_messages_total{${J}} offset $__rate_interval) or increase(outbox_dead_lettered_messages_total{${J}}[$__rate_interval]))`,
              '{{messaging_destination_name}} {{error_type}}',
            ],
          ],
        },
        {
          title: 'Rebalances and crashes',
          description: 'A group that rebalances all the time delivers little; a crash is a client that was rebuilt.',
          unit: 'short',
          queries: [
            [
              `sum by (messaging_consumer_group_name) (increase(outbox_consumer_rebalances_total{${J}}[$__rate_interval]))`,
              'rebalances {{messaging_consumer_group_name}}',
            ],
            [
              `sum by (messaging_consumer_group_name) (increase(outbox_consumer_crashes_total{${J}}[$__rate_interval]))`,
              'crashes {{messaging_consumer_group_name}}',
            ],
          ],
        },
        {
          title: 'Order',
          description:
            'Versions of an aggregate that came after a gap or in reverse. Gaps come with skips; reversals should not be.',
          unit: 'short',
          queries: [
            [
              `sum by (messaging_consumer_group_name, kind) (increase(outbox_consumer_order_violations_total{${J}}[$__rate_interval]))`,
              '{{messaging_consumer_group_name}} {{kind}}',
            ],
          ],
        },
      ],
    },
    {
      title: 'Memory',
      panels: [
        {
          title: 'Remembered events',
          description: 'Rows of processed_events, as the planner estimates them.',
          unit: 'short',
          width: 24,
          queries: [
            ['max by (outbox_name) (outbox_dedupe_stored_count{outbox_name=~"$outbox_name"})', '{{outbox_name}}'],
          ],
        },
      ],
    },
  ],
}
