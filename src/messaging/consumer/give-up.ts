/**
 * After a failed attempt: the event is tried again later, or its key is parked.
 *
 * Parking sets the event aside whole, in the transaction that lets the offset
 * pass it: a crash before leaves it to be delivered again, and after it there
 * is nothing left to do.
 */
import { appendDeadLetter } from '../dead-letters/dead-letter-topic.ts'
import { lockHeldKeys, parkKey, recordAttempts, releaseKeys } from '../dead-letters/held-keys.ts'
import { insertDeadLetters } from '../dead-letters/queries.ts'
import { markSkipped, selectProcessed } from '../inbox/queries.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import { outboxName } from '../telemetry/attributes.ts'
import { inTraceOf } from '../telemetry/event-log.ts'
import { type ConsumerContext, fieldsOf, keyOf, letterOf } from './context.ts'
import { countDeadLetter } from './count.ts'
import { type Decoded, type EventDelivery, traceOf, UndecodablePayloadError } from './decode.ts'
import type { AttemptFailure } from './failure.ts'
import { type Attempted, attempt } from './transaction.ts'

/** Why an event is among the dead letters without a key that waits. */
const CANNOT_BE_HELD = 'CANNOT_BE_HELD'

/** Postgres's word for a row too long for an index: for those of a key, by its id or its type. */
const TOO_LONG = '54000'

/** What follows from a failed attempt. */
export type Consequence =
  | { readonly kind: 'retry'; readonly attempts: number; readonly restMs: number }
  | { readonly kind: 'parked'; readonly attempts: number }
  /** Another instance has processed it meanwhile. */
  | { readonly kind: 'duplicate' }

/**
 * Counts an attempt at `delivery` that failed because of the event, and parks
 * its key after the last. `nextOffset` is stored when the event is set aside;
 * `rowVersion` is what the attempt has met of the key's row.
 */
export async function giveUp(
  context: ConsumerContext,
  delivery: EventDelivery,
  failure: AttemptFailure,
  { nextOffset, rowVersion }: { readonly nextOffset: bigint; readonly rowVersion: string | null },
): Promise<Attempted<Consequence>> {
  const { group, db, bounds, tuning, clock } = context
  const key = keyOf(context, delivery)

  const given = await attempt<Consequence>(db, bounds, async ({ trx, store }) => {
    const { held } = await lockHeldKeys(trx, key, [key])
    const [before] = held
    // Parked by an instance that had the partition: the next delivery lets the event wait behind its own dead letter.
    if (before?.state === 'parked') return { kind: 'retry', attempts: before.attempts, restMs: 0 }

    const { id: eventId, type: eventType } = delivery.envelope
    // Attempts at another event of the key, left by a topic that was made anew, are not this one's.
    const attempts = (before?.eventId === eventId ? before.attempts : 0) + 1
    const retryInMs = backoffMs({ firstMs: tuning.retryFirstMs, maxMs: tuning.retryMaxMs }, attempts, clock.random())
    await recordAttempts(trx, key, { attempts, eventId, eventType, reason: failure.detail, retryInMs, rowVersion })
    const hopeless = failure.error instanceof UndecodablePayloadError
    if (attempts < tuning.maxAttempts && !hopeless) return { kind: 'retry', attempts, restMs: retryInMs }

    if ((await selectProcessed(trx, group, [eventId])).size > 0) {
      await releaseKeys(trx, key, [key])
      return { kind: 'duplicate' }
    }
    const letter = letterOf(context, delivery)
    await parkKey(trx, key)
    await insertDeadLetters(trx, [letter], { state: 'dead', reason: failure.detail, attempts })
    if (tuning.deadLetterTopics) await appendDeadLetter(trx, letter, failure.reason)
    await store(delivery.where, nextOffset)
    return { kind: 'parked', attempts }
  })
  if (given.ok) report(context, delivery, failure, given.value)
  // Who never parks waits all the same.
  else if (given.failure.reason === TOO_LONG && tuning.maxAttempts < Number.POSITIVE_INFINITY) {
    return await setUnholdableAside(context, delivery, failure, nextOffset)
  }
  return given
}

/**
 * A key that no index takes, for its id or its type, as an append of ours refuses
 * both, cannot be held: nothing can count its attempts, and nothing behind it
 * waits. Its event is set aside at once, by its place, and never handled any more.
 */
async function setUnholdableAside(
  context: ConsumerContext,
  delivery: EventDelivery,
  failure: AttemptFailure,
  nextOffset: bigint,
): Promise<Attempted<Consequence>> {
  const { group, db, bounds, tuning, decoding, logger } = context
  const { where, envelope } = delivery
  const key = keyOf(context, delivery)
  // Both parts of the key stay with the record; the list of open dead letters is indexed by both.
  const aggregateType = decoding.aggregateTypeOf(where.topic)
  const letter = { ...letterOf(context, delivery), aggregateType, aggregateId: '', eventId: null, eventType: null }
  const aside = await attempt<Consequence>(db, bounds, async ({ trx, store }) => {
    const isLeftOut = await markSkipped(trx, group, envelope.id)
    if (isLeftOut) {
      await insertDeadLetters(trx, [letter], { state: 'dead', reason: CANNOT_BE_HELD, attempts: 1 })
      if (tuning.deadLetterTopics) await appendDeadLetter(trx, letter, CANNOT_BE_HELD)
    }
    await releaseKeys(trx, key, [key])
    await store(where, nextOffset)
    return isLeftOut ? { kind: 'parked', attempts: 1 } : { kind: 'duplicate' }
  })
  if (aside.ok && aside.value.kind === 'parked') {
    countDeadLetter(where.topic, CANNOT_BE_HELD)
    logger.error(
      { ...fieldsOf(context, delivery), reason: failure.detail },
      'Set an event aside at its first failure: its key is too long to be held',
    )
  }
  return aside
}

/** Sets a record aside that is not one of ours. No key is parked for it: it has none that we know. */
export async function setForeignAside(
  { group, db, bounds, tuning, decoding, logger }: ConsumerContext,
  { where, record, reason }: Extract<Decoded, { kind: 'foreign' }>,
  nextOffset: bigint,
): Promise<Attempted<boolean>> {
  const letter = {
    holder: group,
    topic: where.topic,
    aggregateType: decoding.aggregateTypeOf(where.topic),
    aggregateId: '',
    eventId: null,
    eventType: null,
    where,
    record,
  }
  const aside = await attempt(db, bounds, async ({ trx, store }) => {
    const isNew = (await insertDeadLetters(trx, [letter], { state: 'dead', reason, attempts: 0 })) > 0
    if (isNew && tuning.deadLetterTopics) await appendDeadLetter(trx, letter, reason)
    await store(where, nextOffset)
    return isNew
  })
  if (aside.ok && aside.value) {
    countDeadLetter(where.topic, reason)
    const fields = { consumer: group, outbox: outboxName(), ...where, offset: String(record.offset), reason }
    inTraceOf(traceOf(record.headers), () => logger.error(fields, 'Set a foreign record aside'))
  }
  return aside
}

function report(
  context: ConsumerContext,
  delivery: EventDelivery,
  failure: AttemptFailure,
  outcome: Consequence,
): void {
  const fields = { ...fieldsOf(context, delivery), reason: failure.detail }
  switch (outcome.kind) {
    case 'retry':
      context.logger.warn(
        { ...fields, attempt: outcome.attempts, retry_in_ms: outcome.restMs },
        'A handler failed; its partition waits for the next attempt',
      )
      return
    case 'parked':
      countDeadLetter(delivery.where.topic, failure.reason)
      context.logger.error({ ...fields, attempt: outcome.attempts }, 'Parked a key after its last attempt')
      return
    case 'duplicate':
      return
  }
}
