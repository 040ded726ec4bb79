/**
 * What an application does with events: one handler per event type, or one for
 * a whole set of events at once.
 *
 * A handler's effect and the memory of the event share one transaction, so the
 * effect happens once. That holds for what goes through `trx` alone: a write by
 * another connection, or a call to another system, may happen again.
 */
import type { Knex } from 'knex'
import type { Envelope } from '../envelope.ts'
import { InvalidOptionError } from '../errors.ts'
import { requireFunction, requireObject, requireText } from '../options.ts'
import type { TopicPartition } from '../transport.ts'

/** An event as a handler gets it. */
export interface ReceivedEvent<Type extends string = string, Payload = unknown> extends Omit<Envelope, 'payload'> {
  readonly type: Type
  /**
   * The payload as `JSON.parse` gives it: numbers beyond 2^53 lose digits here.
   * `null` for a tombstone; declare `| null` where the topic carries them.
   */
  readonly payload: Payload
  /** The payload's JSON text as it stood in the record; `null` for a tombstone. */
  readonly payloadText: string | null
  /** Where it was read. */
  readonly source: TopicPartition & { readonly offset: bigint }
}

/**
 * Applies one event inside `trx`. Rejecting rolls back and counts an attempt.
 * Of the error only its code or class, and the place in the application's code,
 * are stored and logged: its message may hold values of the event. A handler
 * that wants to say more gives its error a `code`, or logs for itself.
 * What it starts it must await: with a savepoint open or an append running when
 * it returns it has failed, and `trx` refuses every use after its transaction has
 * ended. To end that is not the handler's: `commit` and `rollback` throw
 * {@link NotInTransactionError}, as the transaction may be that of other events too.
 */
export type Handler<Type extends string = string, Payload = unknown> = (
  trx: Knex.Transaction,
  event: ReceivedEvent<Type, Payload>,
) => Promise<void>

/** A handler for each type of `EventMap`, which maps event types to payload types. */
export type Handlers<EventMap extends object> = {
  readonly [Type in keyof EventMap & string]: Handler<Type, EventMap[Type]>
}

/** The events of a map, as a union that `type` tells apart. */
export type AnyEventOf<EventMap extends object> = {
  [Type in keyof EventMap & string]: ReceivedEvent<Type, EventMap[Type]>
}[keyof EventMap & string]

/** What a consumer can do. Made by {@link defineHandlers} or {@link defineSetHandler}. */
export type HandlerSet =
  | { readonly kind: 'each'; readonly types: ReadonlySet<string>; readonly handlers: ReadonlyMap<string, Handler> }
  | {
      readonly kind: 'many'
      readonly types: ReadonlySet<string>
      readonly handleMany: (trx: Knex.Transaction, events: readonly ReceivedEvent[]) => Promise<void>
    }

/**
 * One handler for each event type:
 * `defineHandlers<{ OrderPlaced: OrderPlacedPayload }>({ OrderPlaced: async (trx, event) => { … } })`.
 * Events of other types are acknowledged and counted.
 */
export function defineHandlers<EventMap extends object>(handlers: Handlers<EventMap>): HandlerSet {
  // The map's types hold at the producer's word alone: a topic carries text.
  requireObject('handlers', handlers)
  const byType = new Map(Object.entries(handlers) as [string, Handler][])
  for (const [type, handler] of byType) {
    requireFunction(`handlers.${type}`, handler, 'a function')
  }
  requireSome('handlers', byType.size)
  return { kind: 'each', types: new Set(byType.keys()), handlers: byType }
}

/**
 * One handler for all new events of a batch at once, for effects that SQL can
 * apply as a set. They come in the partition's order, none twice. Take locks in
 * a stable order (sort by the locked row's key): several partitions run at the
 * same time. When it fails it is called again for each event alone.
 */
export function defineSetHandler<EventMap extends object>(
  types: readonly (keyof EventMap & string)[],
  handleMany: (trx: Knex.Transaction, events: readonly AnyEventOf<EventMap>[]) => Promise<void>,
): HandlerSet {
  if (!Array.isArray(types)) throw new InvalidOptionError('types', types, 'a list of event types')
  for (const type of types) requireText('types', type)
  requireSome('types', types.length)
  requireFunction('handleMany', handleMany, 'a function')
  return {
    kind: 'many',
    types: new Set(types),
    handleMany: handleMany as (trx: Knex.Transaction, events: readonly ReceivedEvent[]) => Promise<void>,
  }
}

/** A consumer of nothing would acknowledge every event, and they would be gone for its group. */
function requireSome(option: string, count: number): void {
  if (count === 0) throw new InvalidOptionError(option, count, 'for one event type or more', 'for none')
}

/** Applies `events`, in their order. */
export async function applyEvents(
  set: HandlerSet,
  trx: Knex.Transaction,
  events: readonly ReceivedEvent[],
): Promise<void> {
  if (set.kind === 'many') {
    await set.handleMany(trx, events)
    return
  }
  for (const event of events) await set.handlers.get(event.type)?.(trx, event)
}
