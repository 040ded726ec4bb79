/** A figure counts only if every event is on the topic, once, unaltered, on its partition and in its aggregate's order. */
import type { Knex } from 'knex'
import { checkHistory } from '../src/messaging/testing/history/check-history.ts'
import { type CommittedEvent, noEvidence } from '../src/messaging/testing/history/evidence.ts'
import { readTopics } from '../test/support/history/read-topics.ts'

export interface GateOptions {
  readonly db: Knex
  /** The outbox that was drained. */
  readonly table: string
  readonly brokers: readonly string[]
  readonly topic: string
  readonly partitions: number
}

/** What is wrong with the topic, one sentence each; empty when nothing is. */
export async function faultsOf({ db, table, brokers, topic, partitions }: GateOptions): Promise<readonly string[]> {
  const [committed, records] = await Promise.all([
    readOutbox(db, { table, topic }),
    readTopics({ brokers, topics: [topic] }),
  ])
  const { violations, doubts } = checkHistory(
    { ...noEvidence, committed, records, topics: [{ topic, partitionCounts: [partitions] }] },
    { keep: 3 },
  )
  return [...doubts, ...violations.map(({ invariant, problem }) => `${invariant}: ${problem}`)]
}

interface OutboxRow {
  readonly id: string
  readonly seq: string
  readonly aggregate_id: string
  readonly aggregate_version: string
  readonly event_type: string
  readonly key_hash: number
  readonly payload_hash: string
}

/** Nothing is pruned during a round, so the table itself is the truth. */
async function readOutbox(
  db: Knex,
  { table, topic }: { table: string; topic: string },
): Promise<readonly CommittedEvent[]> {
  const { rows } = await db.raw<{ rows: OutboxRow[] }>(
    `select id, seq, aggregate_id, aggregate_version, event_type, key_hash,
            encode(sha256(convert_to(payload::text, 'UTF8')), 'hex') as payload_hash
       from :table:
      order by seq`,
    { table },
  )
  return rows.map((row) => ({
    id: row.id,
    seq: BigInt(row.seq),
    topic,
    aggregateType: 'order',
    aggregateId: row.aggregate_id,
    version: Number(row.aggregate_version),
    type: row.event_type,
    keyHash: row.key_hash,
    payloadHash: row.payload_hash,
    operation: null,
  }))
}
