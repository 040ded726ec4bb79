import type { Board } from './board.ts'

const O = 'outbox_name=~"$outbox_name"'

/** The relay from the inside: its reads, its batches, its failures, its threads. */
export const relay: Board = {
  uid: 'outbox-relay',
  title: 'Outbox / Relay',
  description: 'The loop from outbox to broker: reads, batches, failures, lanes and threads.',
  rows: [
    {
      title: 'Work',
      panels: [
        {
          title: 'Published by topic',
          description: 'Events accepted by the broker and marked, a second.',
          unit: 'short',
          alerts: ['OutboxRelayStalled'],
          queries: [
            [
              `sum by (messaging_destination_name) (rate(outbox_relay_published_messages_total{${O}}[$__rate_interval]))`,
              '{{messaging_destination_name}}',
            ],
          ],
        },
        {
          title: 'Reads',
          description:
            'Reads of the outbox a second. Many empty ones mean wake-ups for nothing; errors mean the database.',
          unit: 'short',
          queries: [
            [
              `sum by (outbox_poll_result) (rate(outbox_relay_poll_duration_seconds_count{${O}}[$__rate_interval]))`,
              '{{outbox_poll_result}}',
            ],
          ],
        },
        {
          title: 'Read duration',
          description:
            'The slowest hundredth of reads that found rows, and of those that did not. Growth points to vacuum.',
          unit: 's',
          queries: [
            [
              `histogram_quantile(0.99, sum by (le, outbox_poll_result) (rate(outbox_relay_poll_duration_seconds_bucket{${O}}[$__rate_interval])))`,
              '{{outbox_poll_result}}',
            ],
          ],
        },
        {
          title: 'Batch size',
          description: 'Events in one send. Large batches come with a backlog.',
          unit: 'short',
          kind: 'heatmap',
          queries: [[`sum by (le) (rate(outbox_relay_batch_size_bucket{${O}}[$__rate_interval]))`, '{{le}}']],
        },
      ],
    },
    {
      title: 'Failures',
      panels: [
        {
          title: 'Retries',
          description: 'Attempts after the first, by the failure that made them necessary.',
          unit: 'short',
          queries: [
            [`sum by (error_type) (rate(outbox_relay_retries_total{${O}}[$__rate_interval]))`, '{{error_type}}'],
          ],
        },
        {
          title: 'Held and parked keys',
          description: 'Held keys are tried again by themselves; parked ones wait for an operator.',
          unit: 'short',
          alerts: ['OutboxKeyParked'],
          queries: [
            [`max by (outbox_name) (outbox_held_keys{${O}})`, 'held'],
            [`max by (outbox_name) (outbox_parked_keys{${O}})`, 'parked'],
          ],
        },
        {
          title: 'Topics that rest, have changed, or are weak',
          description:
            '1 while a topic is paused, has another number of partitions than recorded, or too few replicas.',
          unit: 'short',
          alerts: ['OutboxTopicPaused'],
          queries: [
            [
              `max by (messaging_destination_name) (outbox_topic_paused{${O}})`,
              'paused {{messaging_destination_name}}',
            ],
            [
              `max by (messaging_destination_name) (outbox_topic_partitions_changed{${O}})`,
              'partitions changed {{messaging_destination_name}}',
            ],
            [`max by (messaging_destination_name) (outbox_topic_weak{${O}})`, 'weak {{messaging_destination_name}}'],
          ],
        },
        {
          title: 'Send errors',
          description: 'Share of messages whose send failed, by topic.',
          unit: 'percentunit',
          alerts: ['OutboxPublishErrorRatioHigh'],
          queries: [
            [
              'sum by (messaging_destination_name) (rate(messaging_client_sent_messages_total{error_type!="", job=~"$job"}[$__rate_interval])) / sum by (messaging_destination_name) (rate(messaging_client_sent_messages_total{job=~"$job"}[$__rate_interval]))',
              '{{messaging_destination_name}}',
            ],
          ],
        },
      ],
    },
    {
      title: 'Lanes and threads',
      panels: [
        {
          title: 'Lanes owned',
          description: 'Lanes leased to each process; together 64.',
          unit: 'short',
          queries: [[`max by (instance) (outbox_lanes_owned{${O}})`, '{{instance}}']],
        },
        {
          title: 'Since the last round',
          description: 'How long ago each relay thread last went round. Seconds when all is well.',
          unit: 's',
          alerts: ['OutboxRelayLoopDead'],
          queries: [
            [
              `time() - max by (instance, thread) (outbox_relay_last_poll_timestamp_seconds{${O}})`,
              '{{instance}} {{thread}}',
            ],
          ],
        },
        {
          title: 'Fenced writes, restarts, terminations',
          description:
            'Writes of an owner that had lost its lease changed nothing. Threads that died were started again.',
          unit: 'short',
          queries: [
            [`sum(increase(outbox_relay_fenced_writes_total{${O}}[$__rate_interval]))`, 'fenced writes'],
            [`sum(increase(outbox_relay_thread_restarts_total{${O}}[$__rate_interval]))`, 'restarts'],
            [`sum(increase(outbox_relay_thread_terminations_total{${O}}[$__rate_interval]))`, 'terminations'],
          ],
        },
        {
          title: 'Way of waking',
          description: '1 for the way in use. By poll alone, an event waits up to a second.',
          unit: 'short',
          queries: [[`max by (mode) (outbox_wake_mode{${O}})`, '{{mode}}']],
        },
        {
          title: 'Oldest transaction',
          description: 'An old one holds back vacuum, and the relay reads over ever more dead rows.',
          unit: 's',
          queries: [[`max by (outbox_name) (outbox_oldest_transaction_age_seconds{${O}})`, '{{outbox_name}}']],
        },
        {
          title: 'Traces begun anew',
          description: 'Events whose spans did not join the stored trace: too old, replayed, or with broken context.',
          unit: 'short',
          queries: [[`sum by (reason) (rate(outbox_traces_detached_total{${O}}[$__rate_interval]))`, '{{reason}}']],
        },
      ],
    },
  ],
}
