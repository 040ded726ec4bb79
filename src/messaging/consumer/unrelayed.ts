/**
 * Tells of dead letters that nobody publishes: a consumer with a database of
 * its own writes them into that database's outbox, and without a relay there
 * they wait for ever, in silence.
 */
import { deadLettersWaitUnrelayed, deadLetterTopic } from '../dead-letters/dead-letter-topic.ts'
import { untraced } from '../telemetry/tracing.ts'
import type { ConsumerContext } from './context.ts'

/** Milliseconds between two looks. */
const LOOK_MS = 10_000
/** Milliseconds that a dead letter may wait unpublished: a relay may be starting anew. */
const PATIENCE_MS = 60_000

/** Looks until the consumer drains; tells the log once each time that it begins. Never rejects. */
export async function watchUnrelayed(
  { group, db, board, tuning, logger, clock, draining }: ConsumerContext,
  topics: readonly string[],
): Promise<void> {
  if (!tuning.deadLetterTopics) return
  const deadLetterTopics = topics.map((topic) => deadLetterTopic(topic, group))
  while (!draining.aborted) {
    // A database that is away is told of elsewhere; what was last known stands.
    const waits = await untraced(() => deadLettersWaitUnrelayed(db, deadLetterTopics, PATIENCE_MS)).catch(
      () => board.unrelayed,
    )
    if (waits && !board.unrelayed) {
      logger.warn({ consumer: group }, 'Dead letters wait to be published, and no relay runs on this database')
    }
    board.unrelayed = waits
    await clock.pause(LOOK_MS, draining)
  }
}
