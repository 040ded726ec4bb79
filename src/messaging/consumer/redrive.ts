/**
 * What operators ask for parked keys, carried out by the consumer itself, since
 * it alone has the handlers.
 *
 * The key's dead letter and those that wait behind it go through the usual path
 * one after the other, each in a transaction that holds the key's row: what
 * arrives meanwhile waits for that, and is either stored behind them or, once
 * the key is let go, processed as usual. Any instance of the consumer may do
 * it that has a handler for the event, and a crash leaves the request for the next.
 */
import { type HeldKeyRef, recordAttempts, releaseKeys } from '../dead-letters/held-keys.ts'
import { markDead, type StoredRecord, selectNext, settle } from '../dead-letters/queries.ts'
import {
  lockRequested,
  type RequestedKey,
  selectParked,
  setRequest,
  waitForEvent,
} from '../dead-letters/requested-keys.ts'
import { markProcessed, markSkipped } from '../inbox/queries.ts'
import { errorType } from '../telemetry/attributes.ts'
import { eventFields, inTraceOf, keyFields } from '../telemetry/event-log.ts'
import { type DeliveryResult, dedupeSpan, processSpan, untraced } from '../telemetry/tracing.ts'
import { type ConsumerContext, tracedOf } from './context.ts'
import { countDeliveries, recordDelay } from './count.ts'
import { decode, type EventDelivery, receive, traceOf } from './decode.ts'
import type { AttemptFailure } from './failure.ts'
import { applyEvents } from './handlers.ts'
import { type Attempt, attempt } from './transaction.ts'

/** Milliseconds between two looks for requests: how long an operator waits for the first effect. */
const LOOK_MS = 1_000
/** Keys taken up in one look; the next one begins behind them. */
const KEYS_PER_LOOK = 20
/** Parked keys are counted so far for readiness; more is said as "at least". */
const PARKED_COUNTED = 1_000
/** Why a key waits for an event that was not tried: the instance that took it up has no handler for its type. */
const NO_HANDLER = 'NO_HANDLER'

/** Carries out requests until the consumer drains. Never rejects. */
export async function carryOutRequests(context: ConsumerContext): Promise<void> {
  const { board, clock, draining, logger, group } = context
  let round: Round = { after: null, stuck: [] }
  // What is told between two ends of rounds, so that it does not change from page to page.
  let known: readonly StuckRequest[] = []
  while (!draining.aborted) {
    const problem = await carryOutPass(context, round).then(
      (next) => {
        round = next
        if (next.after === null) {
          known = next.stuck
          round = { after: null, stuck: [] }
        }
        return describeStuck(known.length > 0 ? known : round.stuck)
      },
      (error: unknown) => `Requests for parked keys cannot be looked for (${errorType(error)})`,
    )
    if (problem !== null && board.requestsProblem !== problem) logger.warn({ consumer: group }, problem)
    board.requestsProblem = problem
    await clock.pause(LOOK_MS, draining)
  }
}

/** Why a request stands that this instance cannot carry out now. */
interface Stuck {
  readonly reason: string
}

interface StuckRequest extends Stuck {
  readonly key: HeldKeyRef
}

/**
 * A walk over all that is asked for, a page in each look: twenty requests that
 * are stuck keep none behind them from its turn.
 */
interface Round {
  /** The last key of the page before; `null` at the start and at the end. */
  readonly after: HeldKeyRef | null
  readonly stuck: readonly StuckRequest[]
}

function describeStuck([first, ...more]: readonly StuckRequest[]): string | null {
  if (first === undefined) return null
  const { key, reason } = first
  const others = more.length === 0 ? '' : `, and for ${more.length} more`
  return `The request for ${key.aggregateType} ${key.aggregateId} of ${key.topic} cannot be carried out (${reason})${others}`
}

/** Carries out a page of what is asked for at this moment, and counts what is parked. Resolves to how far the round has come. */
async function carryOutPass(context: ConsumerContext, { after, stuck: before }: Round): Promise<Round> {
  const { db, group, bounds, board, draining } = context
  const { requested, parkedCount } = await untraced(() =>
    bounds.calls.follow(() => selectParked(db, group, { after, limit: KEYS_PER_LOOK, countLimit: PARKED_COUNTED })),
  )
  board.parkedCount = parkedCount
  const stuck = [...before]
  for (const key of requested) {
    let step: Step = 'more'
    while (!draining.aborted && step === 'more') step = await redriveNext(context, key).catch(stuckBy)
    if (typeof step === 'object') stuck.push({ ...step, key })
  }
  return { after: requested.length < KEYS_PER_LOOK ? null : (requested.at(-1) ?? null), stuck }
}

/** How far the attempt at a key's next dead letter has come; kept apart, as one that fails has no result. */
interface Current {
  locked: RequestedKey | null
  letter: StoredRecord | null
  delivery: EventDelivery | null
  /** What became of the letter; `null` while nothing did. */
  result: DeliveryResult | null
}

/** Whether the key may have another dead letter to be taken up at once, or what has kept this instance from it. */
type Step = 'more' | 'end' | Stuck

/** One key's failure, whatever it is, keeps none behind it from its turn. */
function stuckBy(error: unknown): Stuck {
  return { reason: errorType(error) }
}

async function redriveNext(context: ConsumerContext, key: HeldKeyRef): Promise<Step> {
  const { db, bounds, handlers } = context
  const current: Current = { locked: null, letter: null, delivery: null, result: null }

  const tried = await attempt<Step>(db, bounds, async (step) => {
    const { trx, begun } = step
    const locked = await lockRequested(trx, key)
    if (locked === null) return 'end'
    begun(locked.backend)
    current.locked = locked

    const letter = await selectNext(trx, key)
    if (letter === null) {
      await releaseKeys(trx, key, [key])
      return 'end'
    }
    current.letter = letter
    if (isSkipOf(locked, letter)) {
      current.result = await skip(context, step, key, letter)
      return 'more'
    }
    // Not as unknown types pass when they arrive: it was set aside by an instance that has a handler for it.
    if (!handlers.types.has(letter.eventType)) {
      await waitForEvent(trx, key, { ...letter, reason: NO_HANDLER })
      return { reason: `no handler for ${letter.eventType} in this instance` }
    }
    current.delivery = deliveryOf(context, letter)
    current.result = await redrive(context, step, letter, current.delivery)
    return 'more'
  })

  const { locked, letter } = current
  if (tried.ok) {
    tell(context, key, current)
    return tried.value
  }
  if (tried.failure.kind === 'outage') return { reason: tried.failure.detail }
  if (tried.failure.kind === 'event' && locked && letter) {
    return await noteFailure(context, { key, locked, letter }, tried.failure)
  }
  return 'end'
}

/** Counts and logs what has been committed, and nothing else. */
function tell(
  { group, logger }: ConsumerContext,
  key: HeldKeyRef,
  { locked, letter, delivery, result }: Readonly<Current>,
): void {
  if (locked && letter === null) logger.debug({ consumer: group, ...keyFields(key) }, 'Let a key go')
  if (letter === null || result === null) return
  countDeliveries(group, key.topic, result)
  if (delivery && result === 'processed') recordDelay(group, delivery)
  const fields = letterFields(key, letter)
  inTraceOf(traceOf(letter.record.headers), () => {
    if (result === 'processed') logger.info(fields, 'Redrove a dead letter')
    else if (result === 'skipped') logger.warn(fields, 'Skipped a dead letter')
    else logger.info(fields, 'Settled a dead letter that had been processed before')
  })
}

/**
 * Whether what is asked is to leave out this very event: the one that the key
 * waited for. Where that has gone on meanwhile, by an earlier request, nothing
 * is left to skip, and the events behind it are redriven: none is left out that
 * was never tried.
 */
function isSkipOf({ request, eventId }: RequestedKey, letter: StoredRecord): boolean {
  return request === 'skip' && (eventId === null || eventId === letter.eventId)
}

/** Declares the first event left out, and resolves to what became of it. What waits behind it is resumed. */
async function skip(
  { group }: ConsumerContext,
  { trx }: Attempt,
  key: HeldKeyRef,
  letter: StoredRecord,
): Promise<DeliveryResult> {
  const left = await markSkipped(trx, group, letter.eventId)
  // Not left out if its effect stands already, by an instance that had the partition before.
  await settle(trx, letter.seq, left ? 'skipped' : 'redriven')
  await setRequest(trx, key, 'resume')
  return left ? 'skipped' : 'duplicate'
}

async function redrive(
  context: ConsumerContext,
  { trx, handle, finish }: Attempt,
  letter: StoredRecord,
  delivery: EventDelivery,
): Promise<DeliveryResult> {
  const { group, handlers } = context
  return await processSpan({ ...tracedOf(context, delivery), replay: true }, async (span) => {
    const isNew = await dedupeSpan(group, async (dedupe) => {
      const fresh = (await markProcessed(trx, group, [letter.eventId])).size === 1
      dedupe.result(fresh ? 'new' : 'duplicate')
      if (fresh) await handle(async () => await applyEvents(handlers, trx, [receive(delivery)]))
      return fresh
    })
    finish()
    await settle(trx, letter.seq, 'redriven')
    const result = isNew ? 'processed' : 'duplicate'
    span.result(result)
    return result
  })
}

/** A dead letter that was taken up, and what was asked then. */
interface TakenUp {
  readonly key: HeldKeyRef
  readonly locked: RequestedKey
  readonly letter: StoredRecord
}

/** It has failed again: the key stays parked, and this event is what it waits for. Where that cannot be noted, the request stands. */
async function noteFailure(
  context: ConsumerContext,
  { key, locked: { rowVersion }, letter }: TakenUp,
  failure: AttemptFailure,
): Promise<Step> {
  const { db, bounds, logger } = context
  const { detail: reason } = failure
  const noted = await attempt(db, bounds, async ({ trx }) => {
    const locked = await lockRequested(trx, key)
    if (locked === null) return null
    const { eventId, eventType } = letter
    const attempts = locked.attempts + 1
    await recordAttempts(trx, key, { attempts, eventId, eventType, reason, retryInMs: 0, rowVersion })
    await markDead(trx, letter.seq, reason)
    return attempts
  })
  const fields = { ...letterFields(key, letter), attempt: noted.ok ? noted.value : null, reason }
  inTraceOf(traceOf(letter.record.headers), () => logger.error(fields, 'A redrive failed; its key stays parked'))
  return noted.ok || noted.failure.kind === 'stopped' ? 'end' : { reason: noted.failure.detail }
}

/** A dead letter in a line of the log, where it came from: also of one that is not to be read again. */
function letterFields(
  { holder, aggregateType, aggregateId }: HeldKeyRef,
  { eventId, eventType, where, record }: StoredRecord,
): object {
  const event = { id: eventId, type: eventType, aggregate: { type: aggregateType, id: aggregateId } }
  return { consumer: holder, ...eventFields(event, where), offset: String(record.offset) }
}

/** A stored record, read again. Its id is the stored one, whatever the options are today. */
function deliveryOf({ decoding }: ConsumerContext, { where, record, eventId }: StoredRecord): EventDelivery {
  const decoded = decode(where, { ...record, headers: { ...record.headers, event_id: eventId } }, decoding)
  if (decoded.kind === 'foreign') throw new Error(`A dead letter cannot be read: ${decoded.reason}`)
  return decoded.delivery
}
