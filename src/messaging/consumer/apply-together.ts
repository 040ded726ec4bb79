/**
 * Many events in one transaction, the usual case: one row per new event in the
 * inbox, the handlers in order, one offset, one commit.
 *
 * All or nothing. When a handler fails, or a key among them rests, everything
 * rolls back and the events are applied one by one instead.
 */
import { lockHeldKeys } from '../dead-letters/held-keys.ts'
import { insertDeadLetters } from '../dead-letters/queries.ts'
import { markProcessed, selectProcessed } from '../inbox/queries.ts'
import type { Poll } from '../telemetry/poll-span.ts'
import { type DeliveryResult, dedupeSpan, processSpan } from '../telemetry/tracing.ts'
import type { TopicPartition } from '../transport.ts'
import { type ConsumerContext, keyOf, keyText, letterOf, tracedOf } from './context.ts'
import { countDeliveries, recordDelay, recordDuration } from './count.ts'
import { type EventDelivery, receive } from './decode.ts'
import type { AttemptFailure } from './failure.ts'
import { applyEvents } from './handlers.ts'
import { type Attempt, attempt } from './transaction.ts'

/** What became of the events. */
export type TogetherOutcome =
  | { readonly kind: 'finished'; readonly fresh: readonly EventDelivery[]; readonly waiting: readonly EventDelivery[] }
  /** Nothing has happened; one by one they may fare better. */
  | { readonly kind: 'apart' }
  | { readonly kind: 'interrupted'; readonly failure: AttemptFailure }

/** Events that are applied in one go. */
export interface Slice {
  readonly where: TopicPartition
  readonly deliveries: readonly EventDelivery[]
  /** Behind the last of them. */
  readonly nextOffset: bigint
}

/** Applies events of one partition, in its order, and stores `nextOffset`. Never rejects. */
export async function applyTogether(
  context: ConsumerContext,
  { where, deliveries, nextOffset }: Slice,
  poll: Poll,
): Promise<TogetherOutcome> {
  const { group, db, bounds, clock } = context
  const started = clock.now()
  const spans = new OpenSpans(poll)

  const tried = await attempt(db, bounds, async (current) => {
    const sorted = await sortOut(context, where, deliveries, current)
    if (sorted === null) return null
    await handleAll(context, sorted.fresh, current, spans)
    current.finish()
    // Last, and ours: where a handler has swallowed an error, Postgres refuses it.
    await current.store(where, nextOffset)
    return sorted
  })

  const sorted = tried.ok ? tried.value : null
  await spans.end(sorted !== null)
  recordDuration(group, where.topic, clock.now() - started, tried.ok ? null : tried.failure.reason)
  if (sorted !== null) {
    await report(context, where, sorted, poll)
    return { kind: 'finished', fresh: sorted.fresh, waiting: sorted.waiting }
  }
  poll.fail(tried.ok ? undefined : tried.failure.error)
  if (tried.ok || tried.failure.kind === 'event') return { kind: 'apart' }
  return { kind: 'interrupted', failure: tried.failure }
}

interface Sorted {
  readonly fresh: readonly EventDelivery[]
  readonly duplicates: readonly EventDelivery[]
  readonly waiting: readonly EventDelivery[]
}

/** Marks what is new and stores what waits behind a parked key; `null` when a key rests. */
async function sortOut(
  context: ConsumerContext,
  where: TopicPartition,
  deliveries: readonly EventDelivery[],
  { trx, begun }: Attempt,
): Promise<Sorted | null> {
  const { group } = context
  const keys = new Map(deliveries.map((delivery) => [keyText(keyOf(context, delivery)), keyOf(context, delivery)]))
  const { backend, held } = await lockHeldKeys(trx, { holder: group, topic: where.topic }, [...keys.values()])
  begun(backend)
  if (held.some((key) => key.state === 'backoff')) return null

  const parked = new Set(held.map(keyText))
  const isParked = (delivery: EventDelivery) => parked.size > 0 && parked.has(keyText(keyOf(context, delivery)))
  // A second copy within the batch is a duplicate of the first.
  const first = new Map(deliveries.toReversed().map((delivery) => [delivery.envelope.id, delivery]))
  const idsOf = (some: readonly EventDelivery[]) => some.map(({ envelope }) => envelope.id)

  const behind = deliveries.filter((delivery) => first.get(delivery.envelope.id) === delivery && isParked(delivery))
  const known = behind.length > 0 ? await selectProcessed(trx, group, idsOf(behind)) : new Set<string>()
  const waiting = behind.filter(({ envelope }) => !known.has(envelope.id))
  await insertDeadLetters(
    trx,
    waiting.map((delivery) => letterOf(context, delivery)),
    { state: 'waiting', reason: null, attempts: 0 },
  )

  const open = deliveries.filter((delivery) => first.get(delivery.envelope.id) === delivery && !isParked(delivery))
  const marked = open.length > 0 ? await markProcessed(trx, group, idsOf(open)) : new Set<string>()
  const fresh = open.filter(({ envelope }) => marked.has(envelope.id))
  const settled = new Set([...fresh, ...waiting])
  return { fresh, waiting, duplicates: deliveries.filter((delivery) => !settled.has(delivery)) }
}

async function handleAll(
  context: ConsumerContext,
  fresh: readonly EventDelivery[],
  { trx, handle }: Attempt,
  spans: OpenSpans,
): Promise<void> {
  const { handlers } = context
  if (fresh.length === 0) return
  if (handlers.kind === 'many') {
    await handle(async () => await handlers.handleMany(trx, fresh.map(receive)))
    return
  }
  for (const delivery of fresh) {
    await spans.open(context, delivery, () => handle(async () => await applyEvents(handlers, trx, [receive(delivery)])))
  }
}

/** Counts and traces, after the commit. Events whose handler ran have their spans already. */
async function report(context: ConsumerContext, { topic }: TopicPartition, sorted: Sorted, poll: Poll): Promise<void> {
  const { group, handlers } = context
  const { fresh, duplicates, waiting } = sorted
  countDeliveries(group, topic, 'processed', fresh.length)
  countDeliveries(group, topic, 'duplicate', duplicates.length)
  countDeliveries(group, topic, 'waiting', waiting.length)
  for (const delivery of fresh) recordDelay(group, delivery)

  if (handlers.kind === 'many') await trace(context, fresh, 'processed', poll)
  await trace(context, duplicates, 'duplicate', poll)
  await trace(context, waiting, 'waiting', poll)
}

async function trace(
  context: ConsumerContext,
  deliveries: readonly EventDelivery[],
  result: DeliveryResult,
  poll: Poll,
): Promise<void> {
  for (const delivery of deliveries) {
    await processSpan(tracedOf(context, delivery), async (span) => {
      if (result !== 'waiting') {
        await dedupeSpan(
          context.group,
          async (dedupe) => dedupe.result(result === 'duplicate' ? 'duplicate' : 'new'),
          poll.context,
        )
      }
      span.result(result)
    })
  }
}

/**
 * The spans of events whose handlers have run in a transaction that is still
 * open: each says `processed` only once that has committed.
 */
class OpenSpans {
  readonly #ended = Promise.withResolvers<boolean>()
  readonly #spans: Promise<void>[] = []
  readonly #poll: Poll

  constructor(poll: Poll) {
    this.#poll = poll
  }

  /** Runs `work` in the event's spans and resolves when it has ended; the outer span stays open. */
  async open(context: ConsumerContext, delivery: EventDelivery, work: () => Promise<void>): Promise<void> {
    const handled = Promise.withResolvers<void>()
    const span = processSpan(tracedOf(context, delivery), async (process) => {
      await dedupeSpan(
        context.group,
        async (dedupe) => {
          dedupe.result('new')
          await work()
        },
        this.#poll.context,
      )
      handled.resolve()
      // Rolled back for another event's sake: this one says nothing of itself.
      if (await this.#ended.promise) process.result('processed')
    })
    this.#spans.push(span.catch(handled.reject))
    await handled.promise
  }

  async end(committed: boolean): Promise<void> {
    this.#ended.resolve(committed)
    await Promise.all(this.#spans)
  }
}
