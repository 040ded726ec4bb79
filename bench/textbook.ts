/**
 * The relay of the textbooks, batched, as a yardstick: claim a page of rows with
 * `for update skip locked`, send it in one call, mark it, commit.
 *
 * One of it keeps order. It awaits the broker inside a transaction, and a second
 * one beside it would reorder aggregates: it is here to be measured, not used.
 */
import { type Admin, Kafka, logLevel, Partitioners, type Producer } from 'kafkajs'
import type { Knex } from 'knex'

/** Makes kafkajs's clients as the relay of the textbooks would. */
export function textbookKafka(brokers: readonly string[]): { readonly producer: Producer; readonly admin: Admin } {
  const kafka = new Kafka({ clientId: 'textbook', brokers: [...brokers], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({
    idempotent: true,
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  return { producer, admin: kafka.admin() }
}

interface PageRow {
  readonly id: string
  readonly aggregate_id: string
  readonly aggregate_version: string
  readonly event_type: string
  readonly payload: string
  readonly occurred_at: Date
}

/** Publishes one page of at most `size` events to `topic`; resolves to how many there were. */
export function publishPage(
  db: Knex,
  producer: Producer,
  { topic, size }: { topic: string; size: number },
): Promise<number> {
  return db.transaction(async (trx) => {
    const { rows } = await trx.raw<{ rows: PageRow[] }>(
      `select id, aggregate_id, aggregate_version, event_type, payload::text, occurred_at
         from textbook_outbox
        where published_at is null
        order by seq
        limit :size
          for update skip locked`,
      { size },
    )
    if (rows.length === 0) return 0
    await producer.send({ topic, acks: -1, messages: rows.map(toMessage) })
    await trx.raw('update textbook_outbox set published_at = now() where id = any(:ids)', {
      ids: rows.map(({ id }) => id),
    })
    return rows.length
  })
}

function toMessage(row: PageRow) {
  return {
    key: row.aggregate_id,
    value: row.payload,
    headers: {
      event_id: row.id,
      event_type: row.event_type,
      aggregate_version: row.aggregate_version,
      occurred_at: row.occurred_at.toISOString(),
    },
  }
}
