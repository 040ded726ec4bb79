/**
 * The inbox: what a consumer has processed, so that a second copy has no second effect.
 *
 * Useful alone too, wherever events arrive by another way than `startConsumer`.
 */
import type { Knex } from 'knex'
import { InvalidOptionError } from '../errors.ts'
import { requireFunction, requireLive, requireObject, requireText } from '../options.ts'
import { dedupeSpan } from '../telemetry/tracing.ts'
import { type GuardedCall, guardOf, handOut } from '../transaction/guard.ts'
import { markProcessed } from './queries.ts'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** What became of a delivery. */
export type Delivery = 'processed' | 'duplicate'

/**
 * Runs `handle` the first time `consumer` meets this event, and never again.
 *
 * The mark and the handler's own writes share `trx`, so a crash undoes both and
 * the redelivery starts afresh. Waits while another transaction has the same
 * event in hand, and handles it only if that one rolls back. Effects outside
 * the database are not covered. Rejects with what `handle` or Postgres rejects
 * with; let the transaction roll back then. Rejects with
 * {@link NotInTransactionError} outside a transaction, where the mark would stand
 * without the effect, and beside an open savepoint of it, with which the mark could
 * be undone while the effect stands; and with {@link InvalidOptionError} for an id that is no UUID.
 */
export function processOnce<Event extends { readonly id: string }>(
  trx: Knex.Transaction,
  consumer: string,
  event: Event,
  handle: (trx: Knex.Transaction, event: Event) => Promise<void>,
): Promise<Delivery> {
  return handOut('processOnce', (call) => process(call, trx, { consumer, event, handle }))
}

interface Once<Event> {
  readonly consumer: string
  readonly event: Event
  readonly handle: (trx: Knex.Transaction, event: Event) => Promise<void>
}

async function process<Event extends { readonly id: string }>(
  call: GuardedCall,
  trx: Knex.Transaction,
  { consumer, event, handle }: Once<Event>,
): Promise<Delivery> {
  requireLive(trx, 'processOnce')
  requireText('consumer', consumer)
  requireObject('event', event)
  if (typeof event.id !== 'string' || !UUID.test(event.id)) {
    throw new InvalidOptionError('event.id', event.id, 'a UUID', 'another value')
  }
  requireFunction('handle', handle, 'a function of the transaction and the event')
  const guard = guardOf(trx)
  return await guard.follow(call, () =>
    dedupeSpan(consumer, async (span) => {
      const fresh = await guard.inTurn(call, () => markProcessed(trx, consumer, [event.id]))
      span.result(fresh.size === 1 ? 'new' : 'duplicate')
      if (fresh.size === 0) return 'duplicate'
      await handle(trx, event)
      return 'processed'
    }),
  )
}
