/**
 * The consumer: the loop from broker to handlers, under one name.
 *
 * Every event's database effect happens once, in the order of its aggregate,
 * whatever is delivered twice, crashes, or is taken over by another member.
 * An event that cannot be handled parks its key and nothing else; a database
 * that is away is waited for.
 */

import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import { CallWatch } from '../lifecycle/call-watch.ts'
import { systemClock } from '../lifecycle/clock.ts'
import { lastingState } from '../lifecycle/lasting-state.ts'
import { silentLogger } from '../lifecycle/logger.ts'
import { type Running, run } from '../lifecycle/running.ts'
import { ATTR_DESTINATION, ATTR_GROUP, ATTR_PARTITION, errorType } from '../telemetry/attributes.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { ActiveSubscription, BatchOutcome, StartOffset, TopicPartition } from '../transport.ts'
import { Board } from './board.ts'
import type { ConsumerContext } from './context.ts'
import { startAtZero } from './count.ts'
import { createDelivery } from './deliver.ts'
import { describe } from './describe.ts'
import { aggregateTypesOf, type ConsumerOptions, groupIdOf, requireParts, resolveTuning, topicsOf } from './options.ts'
import { OrderAudit } from './order-audit.ts'
import { tellPhase } from './phase-log.ts'
import { carryOutRequests } from './redrive.ts'
import type { ConsumerStatus } from './status.ts'
import { StoredOffsets } from './stored-offsets.ts'
import { watchUnrelayed } from './unrelayed.ts'

/** A running consumer. */
export interface Consumer extends Running {
  /** The group id: `<prefix><name>`. */
  readonly groupId: string
  status(): ConsumerStatus
  /**
   * Resolves when every assigned partition has nothing left, as last heard from
   * the broker; rejects if the consumer ends before. For tests and rebuilds: a
   * record published a moment ago may not have been heard of yet.
   */
  whenCaughtUp(): Promise<void>
}

/** Postgres may come up after us. */
const ASK_AGAIN: Backoff = { firstMs: 250, maxMs: 5_000 }
const CAUGHT_UP_LOOK_MS = 20
/** Milliseconds between two looks whether the database has gone back where nothing is stored at the moment. */
const CHECK_MS = 10_000
/** Milliseconds that a cancelled consumer waits at its very end for what it has ended. */
const END_MS = 1_000
/** Milliseconds before the group is joined again after that. */
const REJOIN_MS = 250

/**
 * Joins the group and handles events until stopped. Throws `InvalidOptionError`
 * before anything runs; afterwards only `done` tells of an end that nobody
 * asked for. Neither broker nor database has to be there yet.
 */
export function startConsumer(options: ConsumerOptions): Consumer {
  requireParts(options)
  const groupId = groupIdOf(options)
  const topics = topicsOf(options)
  const tuning = resolveTuning(options)
  const aggregateTypeOf = aggregateTypesOf(options, topics)
  const { db, subscriber, handlers, logger = silentLogger, clock = systemClock } = options
  const board = new Board()
  const calls = new CallWatch({ clock, caller: 'consumer' })
  let subscription: ActiveSubscription | null = null
  let wentBack = new AbortController()
  const offsets = new StoredOffsets(groupId, () => wentBack.abort())

  const running = run(
    async ({ draining, cancelled }) => {
      const context: ConsumerContext = {
        group: groupId,
        db,
        handlers,
        tuning,
        decoding: { aggregateTypeOf, deriveIds: tuning.deriveIds },
        bounds: { handlerTimeoutMs: tuning.handlerTimeoutMs, clock, cancelled, logger, offsets, calls },
        clock,
        logger,
        board,
        audit: new OrderAudit(groupId, logger),
        draining,
      }
      startAtZero(groupId, topics)
      while (!draining.aborted) {
        wentBack = new AbortController()
        const { signal } = wentBack
        await follow(context, signal)
        if (!signal.aborted || draining.aborted) return
        logger.warn({ consumer: groupId }, 'The database has gone back; asking the broker again for what is lost')
        offsets.clear()
        await clock.pause(REJOIN_MS, draining)
      }
    },
    { graceMs: tuning.graceMs },
  )

  /** Subscribes, and resolves when the consumer drains or `again` aborts; rejects when the subscription fails for good. */
  async function follow(context: ConsumerContext, again: AbortSignal): Promise<void> {
    const { draining } = context
    const deliver = createDelivery(context)
    const inHand = new Set<Promise<BatchOutcome>>()
    const active = subscriber.subscribe({
      groupId,
      topics,
      startOffset: (where, endOffset) => startOffset(context, where, endOffset),
      deliver: (batch) => {
        const delivered = deliver(batch).finally(() => inHand.delete(delivered))
        inHand.add(delivered)
        return delivered
      },
    })
    subscription = active
    using _lag = reportLag(groupId, active)

    const ended = new AbortController()
    const untilEnd = { ...context, draining: AbortSignal.any([draining, ended.signal]) }
    const requests = carryOutRequests(untilEnd)
    const telling = tellPhase(untilEnd, () => active.status())
    const checking = checkOffsets(untilEnd, () => active.status().partitions)
    const watching = watchUnrelayed(untilEnd, topics)
    try {
      await Promise.race([active.done, aborted(draining), aborted(again)])
    } finally {
      ended.abort()
      await active.stop()
      // A driver whose own patience has ended first leaves a transaction behind; `cancelled` ends that.
      const over = new AbortController()
      const all = Promise.all([requests, telling, checking, watching, ...inHand])
      await Promise.race([all, afterCancelled(context, over.signal)])
      over.abort()
    }
    await active.done
  }

  const status = (): ConsumerStatus => {
    const of = subscription?.status() ?? { phase: 'joining', reason: null, partitions: [] }
    board.keepOnly(of.partitions)
    return describe(of, board, calls.problem)
  }

  async function whenCaughtUp(): Promise<void> {
    const ended = new AbortController()
    const end = () => ended.abort()
    running.done.then(end, end)
    while (!ended.signal.aborted) {
      const { phase, partitions } = status()
      if (phase === 'running' && partitions.length > 0 && partitions.every(({ lag }) => lag === 0)) return
      await clock.pause(CAUGHT_UP_LOOK_MS, ended.signal)
    }
    await running.done
    throw new Error(`Consumer ${groupId} has stopped before it had caught up`)
  }

  return { ...running, groupId, status, whenCaughtUp }
}

/**
 * Where the effects in the database end. The driver takes the lower of this and
 * the committed offset: a database restored from a backup then gets again what
 * it has forgotten.
 */
async function startOffset(context: ConsumerContext, where: TopicPartition, endOffset: bigint): Promise<StartOffset> {
  const { db, group, bounds, board, audit, clock, draining, logger } = context
  audit.restart(where)
  const unread = lastingState(clock)
  for (let tries = 1; !draining.aborted; tries++) {
    try {
      const stored = await untraced(() => bounds.calls.follow(() => bounds.offsets.begin(db, where, endOffset)))
      board.recovered(where)
      unread.ends((lasting) => logger.info({ consumer: group, ...where, ...lasting }, 'The stored offset can be read'))
      return stored ?? 'earliest'
    } catch (error) {
      const reason = errorType(error)
      board.outage(where, reason)
      unread.holds(() =>
        logger.warn({ consumer: group, ...where, tries, reason }, 'Could not read a stored offset; asking again'),
      )
      await clock.pause(backoffMs(ASK_AGAIN, tries, clock.random()), draining)
    }
  }
  // Nothing is delivered any more.
  return 'earliest'
}

/** Looks whether the database has gone back, until the subscription ends. Never rejects. */
async function checkOffsets(
  { db, bounds, clock, draining }: ConsumerContext,
  ours: () => readonly TopicPartition[],
): Promise<void> {
  while (!draining.aborted) {
    await clock.pause(CHECK_MS, draining)
    // A database that is away is told of elsewhere.
    if (!draining.aborted) await untraced(() => bounds.offsets.check(db, ours())).catch(() => {})
  }
}

function reportLag(groupId: string, active: ActiveSubscription): Disposable {
  const { consumerLag } = getInstruments()
  const observe: Parameters<typeof consumerLag.addCallback>[0] = (result) => {
    for (const { topic, partition, nextOffset, endOffset } of active.status().partitions) {
      result.observe(Math.max(0, Number(endOffset - nextOffset)), {
        [ATTR_GROUP]: groupId,
        [ATTR_DESTINATION]: topic,
        [ATTR_PARTITION]: String(partition),
      })
    }
  }
  consumerLag.addCallback(observe)
  return {
    [Symbol.dispose]: () => {
      consumerLag.removeCallback(observe)
    },
  }
}

/** Resolves soon after the consumer is cancelled: what has not ended by then waits for a database that does not answer. */
async function afterCancelled({ bounds, clock }: ConsumerContext, over: AbortSignal): Promise<void> {
  await Promise.race([aborted(bounds.cancelled), aborted(over)])
  await clock.pause(END_MS, over)
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  await new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
