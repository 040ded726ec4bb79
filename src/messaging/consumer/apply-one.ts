/**
 * One event in a transaction of its own: the memory of it, its effect and the
 * offset commit together, or none of them does.
 */
import { lockHeldKeys, releaseKeys } from '../dead-letters/held-keys.ts'
import { insertDeadLetters } from '../dead-letters/queries.ts'
import { markProcessed, selectProcessed } from '../inbox/queries.ts'
import type { Poll } from '../telemetry/poll-span.ts'
import { dedupeSpan, processSpan } from '../telemetry/tracing.ts'
import { type ConsumerContext, keyOf, letterOf, restOf, tracedOf } from './context.ts'
import { countDeliveries, recordDelay, recordDuration } from './count.ts'
import { type EventDelivery, receive } from './decode.ts'
import type { AttemptFailure } from './failure.ts'
import { giveUp } from './give-up.ts'
import { applyEvents } from './handlers.ts'
import { type Attempted, attempt } from './transaction.ts'

/** What became of one event. */
export type EventOutcome =
  | { readonly kind: 'finished' }
  /** Its key rests: it has to be delivered again. */
  | { readonly kind: 'held'; readonly attempts: number; readonly reason: string; readonly restMs: number }
  | { readonly kind: 'interrupted'; readonly failure: AttemptFailure }

/** Applies one event, or finds that it need not or cannot be applied. Never rejects. */
export async function applyOne(
  context: ConsumerContext,
  delivery: EventDelivery,
  nextOffset: bigint,
  poll: Poll,
): Promise<EventOutcome> {
  const { group, clock, audit } = context
  const { topic } = delivery.where

  return await processSpan(tracedOf(context, delivery), async (span): Promise<EventOutcome> => {
    const started = clock.now()
    const begunWith: BegunWith = { rowVersion: null }
    const tried = await dedupeSpan(
      group,
      (dedupe) => tryOnce(context, delivery, { nextOffset, dedupe, begunWith }),
      poll.context,
    )
    recordDuration(group, topic, clock.now() - started, tried.ok ? null : tried.failure.reason)

    if (tried.ok) {
      const { value } = tried
      if (value.kind === 'resting') return { ...value, kind: 'held' }
      span.result(value.kind)
      countDeliveries(group, topic, value.kind)
      if (value.kind === 'processed') {
        recordDelay(group, delivery)
        audit.see(delivery, { remembered: true })
      } else if (value.kind === 'waiting') audit.forget(delivery)
      return { kind: 'finished' }
    }

    const { failure } = tried
    if (failure.kind !== 'event') return { kind: 'interrupted', failure }
    const given = await giveUp(context, delivery, failure, { ...begunWith, nextOffset })
    if (!given.ok) return { kind: 'interrupted', failure: given.failure }
    const { value: consequence } = given
    switch (consequence.kind) {
      case 'retry':
        span.result('retry', failure.error)
        countDeliveries(group, topic, 'retry')
        return { ...consequence, kind: 'held', reason: failure.detail }
      case 'parked':
        span.result('dead_lettered', failure.error)
        audit.forget(delivery)
        countDeliveries(group, topic, 'dead_lettered')
        return { kind: 'finished' }
      case 'duplicate':
        span.result('duplicate')
        countDeliveries(group, topic, 'duplicate')
        return { kind: 'finished' }
    }
  })
}

type Tried =
  | { readonly kind: 'processed' | 'duplicate' | 'waiting' }
  | { readonly kind: 'resting'; readonly attempts: number; readonly reason: string; readonly restMs: number }

/** Which state of the key's row the attempt has met; `null` for none. Kept apart, as an attempt that fails has no result. */
interface BegunWith {
  rowVersion: string | null
}

interface TryOnce {
  readonly nextOffset: bigint
  readonly dedupe: { result(verdict: 'new' | 'duplicate'): void }
  readonly begunWith: BegunWith
}

async function tryOnce(
  context: ConsumerContext,
  delivery: EventDelivery,
  { nextOffset, dedupe, begunWith }: TryOnce,
): Promise<Attempted<Tried>> {
  const { group, db, bounds, handlers } = context
  const { envelope, where } = delivery
  const key = keyOf(context, delivery)

  return await attempt<Tried>(db, bounds, async ({ trx, begun, handle, finish, store }) => {
    const { backend, held } = await lockHeldKeys(trx, key, [key])
    begun(backend)
    const [before] = held
    begunWith.rowVersion = before?.rowVersion ?? null

    if (before?.state === 'parked') {
      const known = await selectProcessed(trx, group, [envelope.id])
      if (known.size === 0) {
        await insertDeadLetters(trx, [letterOf(context, delivery)], { state: 'waiting', reason: null, attempts: 0 })
      }
      await store(where, nextOffset)
      return { kind: known.size === 0 ? 'waiting' : 'duplicate' }
    }
    const restMs = restOf(context, before?.dueInMs ?? 0)
    if (before && restMs > 0) return { kind: 'resting', attempts: before.attempts, reason: before.reason, restMs }

    const isNew = (await markProcessed(trx, group, [envelope.id])).size === 1
    dedupe.result(isNew ? 'new' : 'duplicate')
    if (isNew) await handle(async () => await applyEvents(handlers, trx, [receive(delivery)]))
    finish()
    if (before) await releaseKeys(trx, key, [key])
    // Last, and ours: where a handler has swallowed an error, Postgres refuses it.
    await store(where, nextOffset)
    return { kind: isNew ? 'processed' : 'duplicate' }
  })
}
