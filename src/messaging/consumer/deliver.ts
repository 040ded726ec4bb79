/**
 * What a consumer does with a batch: slices that share a transaction, one by
 * one where that fails, and a rest for the partition where neither helps.
 *
 * Crash order: the effect, its memory and the offset commit in the consumer's
 * database; the broker learns of the offset afterwards. A crash in between
 * delivers again, and the memory makes that a duplicate.
 */
import { selectRest } from '../dead-letters/held-keys.ts'
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import { type Poll, pollSpan } from '../telemetry/poll-span.ts'
import type { BatchOutcome, IncomingBatch, IncomingRecord, TopicPartition } from '../transport.ts'
import { applyApart, note, type Progress, passTo } from './apply-apart.ts'
import { applyTogether } from './apply-together.ts'
import { placeOf } from './board.ts'
import { type ConsumerContext, restOf, tracedOf } from './context.ts'
import { type Decoded, decode, type EventDelivery } from './decode.ts'
import { type AttemptFailure, classify, NOT_SEVERED } from './failure.ts'

// A partition rests in slices, so that an operator's `retry_now`, a resume elsewhere or a stop is seen soon.
const SLICE_MS = 1_000
/** A database that is back is found within seconds. */
const OUTAGE: Backoff = { firstMs: 250, maxMs: 5_000 }
/** The first transactions are small: nothing is known of the handlers' speed yet. */
const FIRST_SLICE = 32
// Between these, a transaction is neither wasteful nor a burden on others.
const SHORT_MS = 500
const LONG_MS = 2_000

/** Makes the function that a subscription delivers to. It never rejects. */
export function createDelivery(context: ConsumerContext): (batch: IncomingBatch) => Promise<BatchOutcome> {
  const sizes = new Map<string, number>()

  return async function deliver(batch) {
    const where: TopicPartition = { topic: batch.topic, partition: batch.partition }
    const place = placeOf(where)
    // Not `AbortSignal.any`: Node before 24.18 keeps each that it makes for as long as the consumer lives
    // (nodejs/node#62363).
    const signal = {
      get aborted() {
        return batch.signal.aborted || context.draining.aborted
      },
    }
    let nextOffset = batch.records[0]?.offset ?? 0n

    const restMs = await stillResting(context, where, nextOffset)
    if (restMs > 0) return { nextOffset, pauseMs: Math.min(restMs, SLICE_MS) }

    for (let at = 0; at < batch.records.length && !signal.aborted; ) {
      const size = sizes.get(place) ?? Math.min(FIRST_SLICE, context.tuning.batchSize)
      const slice = batch.records.slice(at, at + size)
      const started = context.clock.now()
      const progress = await applySlice(context, where, slice, { from: nextOffset, signal })
      nextOffset = progress.nextOffset
      if (progress.stopped) return { nextOffset, pauseMs: pauseAfter(context, where, progress.stopped) }

      context.board.recovered(where)
      sizes.set(place, nextSize(size, context.clock.now() - started, context.tuning.batchSize))
      at += slice.length
      // Its failure means that the group is about to change: then the signal says what to do.
      await batch.heartbeat().catch(() => {})
    }
    return { nextOffset, pauseMs: 0 }
  }
}

interface SliceBounds {
  readonly from: bigint
  readonly signal: Pick<AbortSignal, 'aborted'>
}

async function applySlice(
  context: ConsumerContext,
  where: TopicPartition,
  records: readonly IncomingRecord[],
  bounds: SliceBounds,
): Promise<Progress> {
  const decoded = records.map((record) => decode(where, record, context.decoding))
  const events = decoded.flatMap((item) => (item.kind === 'event' ? [item.delivery] : []))
  return await pollSpan(
    { ...where, group: context.group },
    () => events.map((delivery) => tracedOf(context, delivery)),
    async (poll) => {
      const progress = await applyDecoded(context, where, { decoded, events, bounds }, poll)
      if (progress.stopped?.kind === 'interrupted') poll.fail(progress.stopped.failure.error)
      if (progress.nextOffset > bounds.from) poll.finished(progress.nextOffset)
      return progress
    },
  )
}

interface DecodedSlice {
  readonly decoded: readonly Decoded[]
  /** Those of them that are events. */
  readonly events: readonly EventDelivery[]
  readonly bounds: SliceBounds
}

async function applyDecoded(
  context: ConsumerContext,
  where: TopicPartition,
  { decoded, events, bounds }: DecodedSlice,
  poll: Poll,
): Promise<Progress> {
  const { handlers, board } = context
  const known = events.filter(({ envelope }) => handlers.types.has(envelope.type))
  const simple = events.length === decoded.length && board.holdingAt(where) === null
  if (!simple || known.length === 1) return await applyApart(context, where, decoded, bounds, poll)

  const nextOffset = endOf(events, bounds.from)
  if (known.length > 1) {
    const together = await applyTogether(context, { where, deliveries: known, nextOffset }, poll)
    if (together.kind === 'apart') return await applyApart(context, where, decoded, bounds, poll)
    if (together.kind === 'interrupted') return { nextOffset: bounds.from, stopped: together }
    auditOrder(context, events, together)
  } else {
    const failure = await passOver(context, where, nextOffset)
    if (failure) return { nextOffset: bounds.from, stopped: { kind: 'interrupted', failure } }
    auditOrder(context, events, { fresh: [], waiting: [] })
  }
  await noteUnknown(context, events, poll)
  return { nextOffset, stopped: null }
}

/** Shows the audit what came for the first time, in the partition's order. */
function auditOrder(
  { audit, handlers }: ConsumerContext,
  events: readonly EventDelivery[],
  { fresh, waiting }: { readonly fresh: readonly EventDelivery[]; readonly waiting: readonly EventDelivery[] },
): void {
  const isFresh = new Set(fresh)
  const isWaiting = new Set(waiting)
  for (const event of events) {
    if (!handlers.types.has(event.envelope.type)) audit.see(event, { remembered: false })
    else if (isFresh.has(event)) audit.see(event, { remembered: true })
    else if (isWaiting.has(event)) audit.forget(event)
  }
}

async function passOver(
  context: ConsumerContext,
  where: TopicPartition,
  nextOffset: bigint,
): Promise<AttemptFailure | null> {
  try {
    await passTo(context, where, nextOffset)
    return null
  } catch (error) {
    return classify(error, 'prepare', NOT_SEVERED)
  }
}

async function noteUnknown(context: ConsumerContext, events: readonly EventDelivery[], poll: Poll): Promise<void> {
  for (const event of events) {
    if (!context.handlers.types.has(event.envelope.type)) await note(context, event, 'unknown_type', poll)
  }
}

/** How long the event at `offset` still has to wait; 0 when it is not the one that holds the partition. */
async function stillResting(context: ConsumerContext, where: TopicPartition, offset: bigint): Promise<number> {
  const holding = context.board.holdingAt(where)
  if (holding === null || holding.offset !== Number(offset)) {
    // Another member has had the partition meanwhile, or it was read anew from elsewhere.
    context.board.release(where)
    return 0
  }
  const { topic, aggregateType, aggregateId } = holding
  // A database that does not answer is met, and told of, by the attempt that follows.
  const key = { holder: context.group, topic, aggregateType, aggregateId }
  return restOf(context, await context.bounds.calls.follow(() => selectRest(context.db, key)).catch(() => 0))
}

function pauseAfter(
  context: ConsumerContext,
  where: TopicPartition,
  stopped: NonNullable<Progress['stopped']>,
): number {
  const { board, clock, logger, group } = context
  switch (stopped.kind) {
    case 'signal':
      return 0
    case 'held':
      board.recovered(where)
      return Math.max(1, Math.min(stopped.restMs, SLICE_MS))
    case 'interrupted': {
      const { failure } = stopped
      if (failure.kind === 'stopped') return 0
      const tries = board.outage(where, failure.reason)
      const pauseMs = backoffMs(OUTAGE, tries, clock.random())
      logger.warn(
        { consumer: group, ...where, reason: failure.reason, tries, retry_in_ms: pauseMs },
        "The consumer's database cannot be used; the partition waits, and no attempt is counted",
      )
      return pauseMs
    }
  }
}

function endOf(events: readonly EventDelivery[], from: bigint): bigint {
  const last = events.at(-1)
  return last ? last.record.offset + 1n : from
}

function nextSize(size: number, ms: number, max: number): number {
  if (ms > LONG_MS) return Math.max(1, Math.floor(size / 2))
  return ms < SHORT_MS ? Math.min(max, size * 2) : size
}
