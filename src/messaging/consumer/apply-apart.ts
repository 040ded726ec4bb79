/**
 * A batch one by one, after it failed as a whole: what cannot be applied holds
 * back its own key and the offset, and nothing else.
 *
 * Each event has its own transaction. Those behind the first unfinished one are
 * remembered in the inbox, so that the redelivery from there on finds them done.
 */
import { selectProcessed } from '../inbox/queries.ts'
import type { Poll } from '../telemetry/poll-span.ts'
import { type DeliveryResult, dedupeSpan, processSpan } from '../telemetry/tracing.ts'
import type { TopicPartition } from '../transport.ts'
import { applyOne } from './apply-one.ts'
import { type ConsumerContext, keyOf, keyText, tracedOf } from './context.ts'
import { countDeliveries } from './count.ts'
import type { Decoded, EventDelivery } from './decode.ts'
import { type AttemptFailure, classify, NOT_SEVERED } from './failure.ts'
import { setForeignAside } from './give-up.ts'

/** How far a batch has come. */
export interface Progress {
  /** Everything below is finished, and stored to be so. */
  readonly nextOffset: bigint
  /** Why it stopped there; `null` when it is through. */
  readonly stopped:
    | { readonly kind: 'held'; readonly restMs: number }
    | { readonly kind: 'interrupted'; readonly failure: AttemptFailure }
    | { readonly kind: 'signal' }
    | null
}

/** Applies records of one partition, in its order; all below `from` are finished. Never rejects. */
export async function applyApart(
  context: ConsumerContext,
  where: TopicPartition,
  records: readonly Decoded[],
  { from, signal }: { readonly from: bigint; readonly signal: Pick<AbortSignal, 'aborted'> },
  poll: Poll,
): Promise<Progress> {
  const { group, db, bounds, board } = context
  const state: ApartState = { finished: from, stored: from, contiguous: true, resting: new Map(), poll }
  const progress = (stopped: Progress['stopped']): Progress => ({ nextOffset: state.finished, stopped })

  try {
    const known = await bounds.calls.follow(() => selectProcessed(db, group, idsOf(context, records)))
    for (const item of records) {
      if (signal.aborted) break
      const failure = await applyItem(context, item, known, state)
      if (failure) return progress({ kind: 'interrupted', failure })
    }
    if (state.stored !== state.finished) await passTo(context, where, state.finished)
  } catch (error) {
    return progress({ kind: 'interrupted', failure: classify(error, 'prepare', NOT_SEVERED) })
  }
  if (state.contiguous) board.release(where)
  if (state.resting.size > 0) return progress({ kind: 'held', restMs: Math.min(...state.resting.values()) })
  return progress(signal.aborted ? { kind: 'signal' } : null)
}

interface ApartState {
  /** Everything below is finished. */
  finished: bigint
  /** The offset that the database has. */
  stored: bigint
  /** Whether nothing unfinished was met so far. */
  contiguous: boolean
  /** Keys that rest, with the milliseconds until they are due. */
  readonly resting: Map<string, number>
  /** The batch that they came with. */
  readonly poll: Poll
}

async function applyItem(
  context: ConsumerContext,
  item: Decoded,
  known: ReadonlySet<string>,
  state: ApartState,
): Promise<AttemptFailure | null> {
  const { record } = item.kind === 'event' ? item.delivery : item
  const nextOffset = state.contiguous ? record.offset + 1n : state.finished
  const finish = (stored: boolean) => {
    if (state.contiguous) state.finished = nextOffset
    if (stored) state.stored = state.finished
  }

  if (item.kind === 'foreign') {
    const aside = await setForeignAside(context, item, nextOffset)
    if (!aside.ok) return aside.failure
    countDeliveries(context.group, item.where.topic, 'dead_lettered')
    finish(true)
    return null
  }
  const { delivery } = item
  const key = keyText(keyOf(context, delivery))
  const holding = context.board.holdingAt(delivery.where)

  if (!context.handlers.types.has(delivery.envelope.type)) {
    await note(context, delivery, 'unknown_type', state.poll)
    context.audit.see(delivery, { remembered: false })
    finish(false)
  } else if (state.resting.has(key)) {
    state.contiguous = false
  } else if (known.has(delivery.envelope.id) && holding?.offset !== Number(record.offset)) {
    await note(context, delivery, 'duplicate', state.poll)
    finish(false)
  } else {
    const outcome = await applyOne(context, delivery, nextOffset, state.poll)
    if (outcome.kind === 'interrupted') return outcome.failure
    if (outcome.kind === 'finished') finish(true)
    else {
      state.resting.set(key, outcome.restMs)
      if (state.contiguous) context.board.hold(delivery, outcome.attempts, outcome.reason)
      state.contiguous = false
    }
  }
  return null
}

/** Stores an offset behind records without effect, so that a restored database does not ask for them again. */
export async function passTo(
  { db, bounds }: ConsumerContext,
  where: TopicPartition,
  nextOffset: bigint,
): Promise<void> {
  await bounds.calls.follow(() => bounds.offsets.store(db, where, nextOffset))
  bounds.offsets.committed(where, nextOffset)
}

/** Counts and traces a delivery without effect: an unknown type, or a copy of what was processed. */
export async function note(
  context: ConsumerContext,
  delivery: EventDelivery,
  result: DeliveryResult,
  poll: Poll,
): Promise<void> {
  countDeliveries(context.group, delivery.where.topic, result)
  await processSpan(tracedOf(context, delivery), async (span) => {
    if (result === 'duplicate') {
      await dedupeSpan(context.group, async (dedupe) => dedupe.result('duplicate'), poll.context)
    }
    span.result(result)
  })
}

function idsOf({ handlers }: ConsumerContext, records: readonly Decoded[]): readonly string[] {
  return records.flatMap((item) =>
    item.kind === 'event' && handlers.types.has(item.delivery.envelope.type) ? [item.delivery.envelope.id] : [],
  )
}
