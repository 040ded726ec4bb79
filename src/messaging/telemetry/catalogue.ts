/**
 * Every metric of the library: name, kind, unit, meaning and attributes.
 *
 * Instruments are made from this table; dashboards, alerts and docs are held
 * to it by a guard test. In Prometheus dots become underscores, seconds add
 * `_seconds` and counters `_total`. One table, however long, since its point is
 * that there is one.
 */
import {
  ATTR_DESTINATION,
  ATTR_ERROR_TYPE,
  ATTR_GROUP,
  ATTR_KIND,
  ATTR_MODE,
  ATTR_OPERATION_NAME,
  ATTR_OUTBOX,
  ATTR_PARTITION,
  ATTR_POLL_RESULT,
  ATTR_REASON,
  ATTR_RESULT,
  ATTR_SYSTEM,
  ATTR_THREAD,
} from './attributes.ts'

/** One metric. */
export interface MetricDefinition {
  readonly name: string
  /** `observableGauge` is asked when metrics are collected, and falls silent with its source. */
  readonly kind: 'counter' | 'gauge' | 'observableGauge' | 'histogram'
  /** UCUM: `s`, or a thing in braces; empty for a plain number. */
  readonly unit: string
  readonly description: string
  /** The attributes that it carries, `error.type` with errors alone. */
  readonly attributes: readonly string[]
  /** Upper bounds of a histogram's buckets, in `unit`. */
  readonly buckets?: readonly number[]
}

const DELAY_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600]
const WORK_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const SIZE_BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]

/** By the name that `createInstruments` gives each. */
export const catalogue = {
  enqueued: {
    name: 'outbox.enqueued.messages',
    kind: 'counter',
    unit: '{message}',
    description: 'Events stored by transactions that committed',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION],
  },
  pendingCount: {
    name: 'outbox.pending.count',
    kind: 'gauge',
    unit: '{message}',
    description: 'Events that wait for the relay, held ones left out; counted up to 100,001',
    attributes: [ATTR_OUTBOX],
  },
  pendingOldestAge: {
    name: 'outbox.pending.oldest.age',
    kind: 'gauge',
    unit: 's',
    description: 'How long the oldest pending event has waited, held ones left out',
    attributes: [ATTR_OUTBOX],
  },
  publishDelay: {
    name: 'outbox.publish.delay',
    kind: 'histogram',
    unit: 's',
    description: 'From the creation of the row to its acceptance by the broker',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION],
    buckets: DELAY_BUCKETS,
  },
  published: {
    name: 'outbox.relay.published.messages',
    kind: 'counter',
    unit: '{message}',
    description: 'Events accepted by the broker and marked as published',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION],
  },
  retries: {
    name: 'outbox.relay.retries',
    kind: 'counter',
    unit: '{retry}',
    description: 'Attempts after the first, by the failure that made them necessary',
    attributes: [ATTR_OUTBOX, ATTR_ERROR_TYPE],
  },
  batchSize: {
    name: 'outbox.relay.batch.size',
    kind: 'histogram',
    unit: '{message}',
    description: 'Events in one batch to one topic-partition',
    attributes: [ATTR_OUTBOX],
    buckets: SIZE_BUCKETS,
  },
  pollDuration: {
    name: 'outbox.relay.poll.duration',
    kind: 'histogram',
    unit: 's',
    description: 'One read of the outbox',
    attributes: [ATTR_OUTBOX, ATTR_POLL_RESULT],
    buckets: WORK_BUCKETS,
  },
  lastPoll: {
    name: 'outbox.relay.last_poll.timestamp',
    kind: 'gauge',
    unit: 's',
    description: 'When the relay thread last went round its loop, as Unix time, also when idle',
    attributes: [ATTR_OUTBOX, ATTR_THREAD],
  },
  lanesOwned: {
    name: 'outbox.lanes.owned',
    kind: 'gauge',
    unit: '{lane}',
    description: 'Lanes leased to this relay',
    attributes: [ATTR_OUTBOX],
  },
  fencedWrites: {
    name: 'outbox.relay.fenced.writes',
    kind: 'counter',
    unit: '{write}',
    description: 'Writes that changed nothing since the lease was gone',
    attributes: [ATTR_OUTBOX],
  },
  threadRestarts: {
    name: 'outbox.relay.thread.restarts',
    kind: 'counter',
    unit: '{restart}',
    description: 'Relay threads started again after they died',
    attributes: [ATTR_OUTBOX],
  },
  threadTerminations: {
    name: 'outbox.relay.thread.terminations',
    kind: 'counter',
    unit: '{thread}',
    description: 'Relay threads ended by force, since they stood still or did not drain in time',
    attributes: [ATTR_OUTBOX],
  },
  heldKeys: {
    name: 'outbox.held.keys',
    kind: 'gauge',
    unit: '{key}',
    description: 'Keys that wait for their next attempt after a refusal; counted up to 100,001',
    attributes: [ATTR_OUTBOX],
  },
  parkedKeys: {
    name: 'outbox.parked.keys',
    kind: 'gauge',
    unit: '{key}',
    description: 'Keys that wait for an operator; counted up to 100,001',
    attributes: [ATTR_OUTBOX],
  },
  topicPaused: {
    name: 'outbox.topic.paused',
    kind: 'gauge',
    unit: '',
    description: '1 while the topic, or a partition of it, rests because its destination refuses or is away',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION],
  },
  topicPartitionsChanged: {
    name: 'outbox.topic.partitions.changed',
    kind: 'gauge',
    unit: '',
    description: '1 while the broker has another number of partitions than the relays use',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION],
  },
  topicWeak: {
    name: 'outbox.topic.weak',
    kind: 'gauge',
    unit: '',
    description: '1 while the topic has fewer than 3 replicas or fewer than 2 of them in sync suffice',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION],
  },
  oldestTransactionAge: {
    name: 'outbox.oldest.transaction.age',
    kind: 'gauge',
    unit: 's',
    description: "The oldest open transaction of the outbox's database; it holds back vacuum and the relay's floor",
    attributes: [ATTR_OUTBOX],
  },
  wakeMode: {
    name: 'outbox.wake.mode',
    kind: 'gauge',
    unit: '',
    description: '1 for the way in which wake-ups of other processes arrive: notify or poll',
    attributes: [ATTR_OUTBOX, ATTR_MODE],
  },
  deadLettered: {
    name: 'outbox.dead_lettered.messages',
    kind: 'counter',
    unit: '{message}',
    description: 'Records that consumers have given up or set aside',
    attributes: [ATTR_OUTBOX, ATTR_DESTINATION, ATTR_ERROR_TYPE],
  },
  deadLetterCount: {
    name: 'outbox.dead_letter.count',
    kind: 'gauge',
    unit: '{message}',
    description: 'Dead letters that nobody has settled; counted up to 100,001',
    attributes: [ATTR_OUTBOX],
  },
  processed: {
    name: 'outbox.consumer.processed.messages',
    kind: 'counter',
    unit: '{message}',
    description: 'Deliveries to a consumer, by what became of them',
    attributes: [ATTR_GROUP, ATTR_DESTINATION, ATTR_RESULT],
  },
  deliveryDelay: {
    name: 'outbox.consumer.delivery.delay',
    kind: 'histogram',
    unit: 's',
    description: 'From the creation of the row to the commit of its effect',
    attributes: [ATTR_GROUP, ATTR_DESTINATION],
    buckets: DELAY_BUCKETS,
  },
  consumerLag: {
    name: 'outbox.consumer.lag',
    kind: 'observableGauge',
    unit: '{message}',
    description: 'Records between the next one to deliver and the end of the partition, as last heard',
    attributes: [ATTR_GROUP, ATTR_DESTINATION, ATTR_PARTITION],
  },
  dedupeStored: {
    name: 'outbox.dedupe.stored.count',
    kind: 'gauge',
    unit: '{message}',
    description: 'Rows of processed_events, as the planner estimates them',
    attributes: [ATTR_OUTBOX],
  },
  rebalances: {
    name: 'outbox.consumer.rebalances',
    kind: 'counter',
    unit: '{rebalance}',
    description: 'Times that a member of a group was given its partitions anew, each member for itself',
    attributes: [ATTR_GROUP],
  },
  crashes: {
    name: 'outbox.consumer.crashes',
    kind: 'counter',
    unit: '{crash}',
    description: 'Times that a subscription could not join, or its client gave up, and that it was built anew',
    attributes: [ATTR_GROUP],
  },
  orderViolations: {
    name: 'outbox.consumer.order.violations',
    kind: 'counter',
    unit: '{violation}',
    description: 'Versions of an aggregate that came after a gap or in reverse',
    attributes: [ATTR_GROUP, ATTR_DESTINATION, ATTR_KIND],
  },
  tracesDetached: {
    name: 'outbox.traces.detached',
    kind: 'counter',
    unit: '{trace}',
    description: 'Spans that began a trace of their own instead of joining the stored one: old, replay, malformed',
    attributes: [ATTR_OUTBOX, ATTR_REASON],
  },
  sentMessages: {
    name: 'messaging.client.sent.messages',
    kind: 'counter',
    unit: '{message}',
    description: 'Messages that a producer tried to send to the broker; `error.type` when that failed',
    attributes: [ATTR_SYSTEM, ATTR_OPERATION_NAME, ATTR_DESTINATION, ATTR_ERROR_TYPE],
  },
  clientOperationDuration: {
    name: 'messaging.client.operation.duration',
    kind: 'histogram',
    unit: 's',
    description: 'One produce request, from the call to its answer',
    attributes: [ATTR_SYSTEM, ATTR_OPERATION_NAME, ATTR_DESTINATION, ATTR_ERROR_TYPE],
    buckets: WORK_BUCKETS,
  },
  processDuration: {
    name: 'messaging.process.duration',
    kind: 'histogram',
    unit: 's',
    description: 'One transaction of a consumer, for one event or a batch',
    attributes: [ATTR_SYSTEM, ATTR_OPERATION_NAME, ATTR_DESTINATION, ATTR_GROUP, ATTR_ERROR_TYPE],
    buckets: WORK_BUCKETS,
  },
} as const satisfies Record<string, MetricDefinition>

/** The catalogue's keys: what `createInstruments` returns by. */
export type InstrumentName = keyof typeof catalogue
