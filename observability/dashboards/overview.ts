import type { Board } from './board.ts'

const O = 'outbox_name=~"$outbox_name"'

/** What an operator looks at first: whether events arrive in time, and what waits. */
export const overview: Board = {
  uid: 'outbox-overview',
  title: 'Outbox / Overview',
  description: 'Whether events reach the broker in time, and what waits or was given up.',
  rows: [
    {
      title: 'Now',
      panels: [
        {
          title: 'In time, last 24 h',
          description: 'Share of events accepted by the broker within 5 s of their commit. The objective is 99.9 %.',
          unit: 'percentunit',
          kind: 'stat',
          width: 4,
          alerts: ['OutboxPublishDelayBudgetBurnFast', 'OutboxPublishDelayBudgetBurnSlow'],
          queries: [
            [
              `sum by (outbox_name) (rate(outbox_publish_delay_seconds_bucket{${O}, le="5"}[24h])) / sum by (outbox_name) (rate(outbox_publish_delay_seconds_count{${O}}[24h]))`,
              '{{outbox_name}}',
            ],
          ],
        },
        {
          title: 'Oldest pending',
          description:
            'How long the oldest event that waits for the relay has waited. Above a minute somebody is paged.',
          unit: 's',
          kind: 'stat',
          width: 4,
          redFrom: 60,
          alerts: ['OutboxOldestPendingTooOld'],
          queries: [[`max by (outbox_name) (outbox_pending_oldest_age_seconds{${O}})`, '{{outbox_name}}']],
        },
        {
          title: 'Pending',
          description: 'Events that wait for the relay, held ones left out; counted up to 100,001.',
          unit: 'short',
          kind: 'stat',
          width: 4,
          redFrom: 100_000,
          alerts: ['OutboxTelemetryAbsent', 'OutboxBacklogGrowing'],
          queries: [[`max by (outbox_name) (outbox_pending_count{${O}})`, '{{outbox_name}}']],
        },
        {
          title: 'Parked keys',
          description:
            'Keys whose first event was refused again and again: they wait for an operator, all others flow.',
          unit: 'short',
          kind: 'stat',
          width: 4,
          redFrom: 1,
          alerts: ['OutboxKeyParked'],
          queries: [[`max by (outbox_name) (outbox_parked_keys{${O}})`, '{{outbox_name}}']],
        },
        {
          title: 'Open dead letters',
          description: 'Events given up, and those that wait behind them.',
          unit: 'short',
          kind: 'stat',
          width: 4,
          redFrom: 1,
          alerts: ['OutboxDeadLetterUnattended'],
          queries: [[`max by (outbox_name) (outbox_dead_letter_count{${O}})`, '{{outbox_name}}']],
        },
        {
          title: 'Threads down',
          description: 'Threads that have stopped answering. A relay without threads leaves its lanes to others.',
          unit: 'short',
          kind: 'stat',
          width: 4,
          redFrom: 1,
          queries: [['count(service_thread_up{job=~"$job"} == 0) or vector(0)', 'down']],
        },
      ],
    },
    {
      title: 'Flow',
      panels: [
        {
          title: 'Events a second',
          description:
            'Committed with their transaction, accepted by the broker, and applied. The lines lie on one another when all is well.',
          unit: 'short',
          queries: [
            [`sum(rate(outbox_enqueued_messages_total{${O}}[$__rate_interval]))`, 'enqueued'],
            [`sum(rate(outbox_relay_published_messages_total{${O}}[$__rate_interval]))`, 'published'],
            [
              'sum by (messaging_consumer_group_name) (rate(outbox_consumer_processed_messages_total{outbox_result="processed", job=~"$job"}[$__rate_interval]))',
              'processed by {{messaging_consumer_group_name}}',
            ],
          ],
        },
        {
          title: 'Backlog',
          description: 'Events that wait for the relay.',
          unit: 'short',
          alerts: ['OutboxBacklogGrowing'],
          queries: [[`max by (outbox_name) (outbox_pending_count{${O}})`, '{{outbox_name}}']],
        },
        {
          title: 'Publish delay',
          description: 'From the creation of the row to the broker’s answer, as a share of events in each range.',
          unit: 's',
          kind: 'heatmap',
          queries: [[`sum by (le) (rate(outbox_publish_delay_seconds_bucket{${O}}[$__rate_interval]))`, '{{le}}']],
        },
        {
          title: 'Publish delay, quantiles',
          description: 'The median and the slowest hundredth.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.5, sum by (le) (rate(outbox_publish_delay_seconds_bucket{${O}}[$__rate_interval])))`,
              'median',
            ],
            [
              `histogram_quantile(0.99, sum by (le) (rate(outbox_publish_delay_seconds_bucket{${O}}[$__rate_interval])))`,
              '99 %',
            ],
          ],
        },
        {
          title: 'Error budget burn',
          description: '1 uses the budget up in exactly 30 days. Fast burn pages at 14.4 over an hour.',
          unit: 'short',
          alerts: ['OutboxPublishDelayBudgetBurnFast', 'OutboxPublishDelayBudgetBurnSlow'],
          queries: [
            [`outbox:publish_slow:ratio_rate1h{${O}} / 0.001`, '1 h'],
            [`outbox:publish_slow:ratio_rate6h{${O}} / 0.001`, '6 h'],
            [`outbox:publish_slow:ratio_rate3d{${O}} / 0.001`, '3 d'],
          ],
        },
        {
          title: 'Firing alerts',
          description: 'What is firing now; docs/operating.md has a section for each.',
          unit: 'short',
          kind: 'table',
          queries: [['ALERTS{alertname=~"Outbox.+", alertstate="firing"}', '']],
        },
      ],
    },
  ],
}
