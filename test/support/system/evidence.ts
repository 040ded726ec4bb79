/** Reads what a run of the service has left behind: tables, topics and histories, as evidence for the checker. */
import { Kafka, logLevel } from 'kafkajs'
import type { Knex } from 'knex'
import {
  type CommittedEvent,
  type ConsumerEvidence,
  type Evidence,
  noEvidence,
} from '../../../src/messaging/testing/history/evidence.ts'
import { readHistory } from '../../../src/messaging/testing/history/recorder.ts'
import { readShadow, shadowsFromTheStart } from '../../../src/messaging/testing/history/shadow.ts'
import { readTopics } from '../history/read-topics.ts'

export const TOPIC = 'order.events'
export const CONSUMER = 'orders-summary'

export interface EvidenceOptions {
  readonly db: Knex
  readonly brokers: readonly string[]
  readonly historyFiles: readonly string[]
  readonly partitionCounts: readonly number[]
  readonly disturbances: number
  readonly faultsExpected?: boolean
  readonly recoveries?: Evidence['recoveries']
}

/** Resolves once nothing is pending and the consumer has processed every committed event; rejects with what is missing after `withinMs`. */
export async function caughtUp(db: Knex, withinMs: number): Promise<number> {
  const from = performance.now()
  for (;;) {
    const { rows } = await db.raw<{ rows: { pending: number; unprocessed: number }[] }>(
      `select (select count(*)::integer from outbox where published_at is null) as pending,
              (select count(*)::integer
                 from outbox_shadow.committed
                where not exists (
                      select 1
                        from processed_events
                       where consumer = :consumer
                         and event_id = committed.id)) as unprocessed,
              pg_sleep(0.1)`,
      { consumer: CONSUMER },
    )
    const { pending = -1, unprocessed = -1 } = rows[0] ?? {}
    const tookMs = performance.now() - from
    if (pending === 0 && unprocessed === 0) return tookMs
    if (tookMs > withinMs) throw new Error(`${pending} pending and ${unprocessed} unprocessed after ${withinMs} ms`)
  }
}

/** Everything, once it has calmed down. */
export async function collectEvidence(options: EvidenceOptions): Promise<Evidence> {
  const { db, brokers, historyFiles, partitionCounts, disturbances, faultsExpected = true, recoveries = [] } = options
  const committed = await readShadow(db, { topicFor: () => TOPIC, operationOf })
  return {
    ...noEvidence,
    history: await readHistory(historyFiles),
    committed,
    fromTheStart: await shadowsFromTheStart(db),
    records: await readTopics({ brokers, topics: [TOPIC] }),
    topics: [{ topic: TOPIC, partitionCounts }],
    consumers: [await readConsumer(db, brokers)],
    states: await readStates(db),
    sums: await readSums(db),
    recoveries,
    final: await readFinal(db),
    disturbances,
    faultsExpected,
  }
}

/** The load writes its operation's id where the payload has room for it. */
function operationOf({ type, payload }: { type: string; payload: string | null }): CommittedEvent['operation'] {
  const { items, reason } = JSON.parse(payload ?? '{}') as { items?: { sku: string }[]; reason?: string }
  return (type === 'OrderPlaced' ? items?.[0]?.sku : reason) ?? null
}

async function readConsumer(db: Knex, brokers: readonly string[]): Promise<ConsumerEvidence> {
  const processed = await db('processed_events')
    .where({ consumer: CONSUMER })
    .select<{ event_id: string }[]>('event_id')
  const deadLetters = await db('dead_letters')
    .where({ holder: CONSUMER })
    .whereNotNull('event_id')
    .select<{ event_id: string }[]>('event_id')
  const admin = new Kafka({ clientId: 'evidence', brokers: [...brokers], logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  try {
    const offsets = await admin.fetchOffsets({ groupId: CONSUMER, topics: [TOPIC] })
    return {
      consumer: CONSUMER,
      topics: [TOPIC],
      processed: processed.map(({ event_id }) => event_id),
      effects: null,
      deadLetters: deadLetters.map(({ event_id }) => event_id),
      ignoredTypes: [],
      committedOffsets: offsets.flatMap(({ topic, partitions }) =>
        partitions.map(({ partition, offset }) => ({ topic, partition, offset: BigInt(offset) })),
      ),
    }
  } finally {
    await admin.disconnect()
  }
}

async function readStates(db: Knex): Promise<Evidence['states']> {
  const orders = await db('orders').select<{ id: string; version: number }[]>('id', 'version')
  return orders.map(({ id, version }) => ({ aggregateType: 'order', aggregateId: id, version }))
}

interface SumRow {
  readonly customer_id: string
  readonly expected: string
  readonly actual: string
}

/** Each customer's six sums as one text, from the committed events and from the read model. */
async function readSums(db: Knex): Promise<Evidence['sums']> {
  const { rows } = await db.raw<{ rows: SumRow[] }>(
    `with stated as (
       select payload ->> 'customerId' as customer_id,
              concat_ws(' ',
                count(*) filter (where event_type = 'OrderPlaced'),
                coalesce(sum((payload ->> 'totalCents')::bigint) filter (where event_type = 'OrderPlaced'), 0),
                count(*) filter (where event_type = 'OrderShipped'),
                coalesce(sum((payload ->> 'totalCents')::bigint) filter (where event_type = 'OrderShipped'), 0),
                count(*) filter (where event_type = 'OrderCancelled'),
                coalesce(sum((payload ->> 'totalCents')::bigint) filter (where event_type = 'OrderCancelled'), 0)) as sums
         from outbox_shadow.committed
        group by 1),
     kept as (
       select customer_id,
              concat_ws(' ', placed_count, placed_total_cents, shipped_count, shipped_total_cents, cancelled_count,
                        cancelled_total_cents) as sums
         from customer_summary)
     select coalesce(stated.customer_id, kept.customer_id) as customer_id,
            coalesce(stated.sums, 'nothing') as expected,
            coalesce(kept.sums, 'nothing') as actual
       from stated
       full join kept on kept.customer_id = stated.customer_id`,
  )
  return rows.map(({ customer_id: name, expected, actual }) => ({ name, expected, actual }))
}

async function readFinal(db: Knex): Promise<Evidence['final']> {
  const { rows: lanes } = await db.raw<{ rows: { lane: number; owner: string | null }[] }>(
    'select lane, owner from lane_leases order by lane',
  )
  const { rows: live } = await db.raw<{ rows: { owner: string }[] }>(
    'select owner from relay_workers where expires_at > clock_timestamp()',
  )
  const { rows: pending } = await db.raw<{ rows: { count: number }[] }>(
    'select count(*)::integer as count from outbox where published_at is null and not held',
  )
  return { pending: pending[0]?.count ?? -1, lanes, liveOwners: live.map(({ owner }) => owner) }
}
