/** The SQL on `customer_summary`. One function, one statement; rows do not leave this file. */
import type { Knex } from 'knex'

/** What a customer's orders add up to. */
export interface CustomerSummary {
  readonly customerId: string
  readonly placedCount: number
  readonly placedTotalCents: number
  readonly shippedCount: number
  readonly shippedTotalCents: number
  readonly cancelledCount: number
  readonly cancelledTotalCents: number
  readonly updatedAt: Date
}

/** What some events add to a customer's summary. */
export type SummaryChange = Omit<CustomerSummary, 'updatedAt'>

interface SummaryRow {
  readonly customer_id: string
  readonly placed_count: number
  readonly placed_total_cents: string
  readonly shipped_count: number
  readonly shipped_total_cents: string
  readonly cancelled_count: number
  readonly cancelled_total_cents: string
  readonly updated_at: Date
}

/**
 * Adds `changes` to the summaries, making those that are missing. Each customer at most once.
 *
 * The rows are locked in order of customer, so two batches with the same
 * customers wait for each other and never in a circle. Adding needs no earlier
 * read: what a concurrent batch has committed is what the addition starts from.
 */
export async function addToSummaries(trx: Knex.Transaction, changes: readonly SummaryChange[]): Promise<void> {
  await trx.raw(
    `insert into customer_summary as s (
            customer_id, placed_count, placed_total_cents, shipped_count, shipped_total_cents,
            cancelled_count, cancelled_total_cents)
     select c."customerId", c."placedCount", c."placedTotalCents", c."shippedCount", c."shippedTotalCents",
            c."cancelledCount", c."cancelledTotalCents"
       from jsonb_to_recordset(:changes::jsonb) as c (
            "customerId" text, "placedCount" integer, "placedTotalCents" bigint, "shippedCount" integer,
            "shippedTotalCents" bigint, "cancelledCount" integer, "cancelledTotalCents" bigint)
      order by c."customerId" collate "C"
         on conflict (customer_id) do update
        set placed_count = s.placed_count + excluded.placed_count,
            placed_total_cents = s.placed_total_cents + excluded.placed_total_cents,
            shipped_count = s.shipped_count + excluded.shipped_count,
            shipped_total_cents = s.shipped_total_cents + excluded.shipped_total_cents,
            cancelled_count = s.cancelled_count + excluded.cancelled_count,
            cancelled_total_cents = s.cancelled_total_cents + excluded.cancelled_total_cents,
            updated_at = clock_timestamp()`,
    { changes: JSON.stringify(changes) },
  )
}

/** A customer's summary as last committed; `null` before the first event. Served by the primary key. */
export async function selectSummary(db: Knex, customerId: string): Promise<CustomerSummary | null> {
  const { rows } = await db.raw<{ rows: SummaryRow[] }>(
    `select customer_id, placed_count, placed_total_cents, shipped_count, shipped_total_cents,
            cancelled_count, cancelled_total_cents, updated_at
       from customer_summary
      where customer_id = :customerId`,
    { customerId },
  )
  return rows[0] ? toSummary(rows[0]) : null
}

function toSummary(row: SummaryRow): CustomerSummary {
  return {
    customerId: row.customer_id,
    placedCount: row.placed_count,
    placedTotalCents: Number(row.placed_total_cents),
    shippedCount: row.shipped_count,
    shippedTotalCents: Number(row.shipped_total_cents),
    cancelledCount: row.cancelled_count,
    cancelledTotalCents: Number(row.cancelled_total_cents),
    updatedAt: row.updated_at,
  }
}
