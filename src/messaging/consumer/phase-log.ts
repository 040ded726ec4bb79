/**
 * Tells the log when a consumer stops getting events, and when it gets them
 * again: whoever gives `startConsumer` a logger need not ask `status()` for an
 * unreachable broker or a missing topic.
 */
import type { SubscriptionStatus } from '../transport.ts'
import type { ConsumerContext } from './context.ts'

/** Milliseconds between two looks. */
const LOOK_MS = 1_000
/** Looks in a row after which a failure is told: on a new system a topic is missing for a moment. */
const LASTING_LOOKS = 3

/**
 * Looks at `status` until the consumer drains. Each reason is told once while
 * the subscription fails, however often it alternates with others, and its end
 * once. Never rejects.
 */
export async function tellPhase(
  { group, logger, clock, draining }: Pick<ConsumerContext, 'group' | 'logger' | 'clock' | 'draining'>,
  status: () => SubscriptionStatus,
): Promise<void> {
  const told = new Set<string>()
  let failedLooks = 0
  while (!draining.aborted) {
    const { phase, reason } = status()
    failedLooks = phase === 'failing' ? failedLooks + 1 : 0
    if (failedLooks >= LASTING_LOOKS && reason !== null && !told.has(reason)) {
      logger.warn({ consumer: group, reason }, 'The subscription fails; it is tried again until it works')
      told.add(reason)
    }
    if (phase === 'running' && told.size > 0) {
      logger.info({ consumer: group }, 'The subscription works again')
      told.clear()
    }
    await clock.pause(LOOK_MS, draining)
  }
}
