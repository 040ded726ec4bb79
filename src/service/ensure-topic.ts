/**
 * Makes the topic that the consumer reads, where it does not exist: a consumer
 * on a new system is then ready before the first event, and not after it.
 */
import {
  backoffMs,
  type Logger,
  lastingState,
  PublishError,
  type Publisher,
  systemClock,
  type TopicSpec,
} from '../messaging/index.ts'

const BACKOFF = { firstMs: 500, maxMs: 30_000 }

/**
 * Resolves when `topic` exists, when making it is not allowed (whoever may will
 * make it; the consumer waits), or when `signal` aborts. Waits out outages.
 */
export async function ensureTopic(
  topic: string,
  spec: TopicSpec,
  { publisher, logger, signal }: { publisher: Publisher; logger: Logger; signal: AbortSignal },
): Promise<void> {
  const away = lastingState()
  for (let attempt = 1; !signal.aborted; attempt++) {
    try {
      const found = await publisher.describeTopic(topic)
      away.ends((lasting) => logger.info({ topic, ...lasting }, 'Kafka can be reached'))
      if (found) return
      await publisher.createTopic(topic, spec)
      logger.info({ topic, ...spec }, 'Made a topic')
      return
    } catch (error) {
      if (!(error instanceof PublishError && error.kind === 'outage')) {
        logger.warn({ topic, error, attempt }, 'Could not make a topic')
        return
      }
      const { reason } = error
      away.holds(() => logger.warn({ topic, reason, attempt }, 'Kafka cannot be reached yet'))
      await systemClock.pause(backoffMs(BACKOFF, attempt, Math.random()), signal)
    }
  }
}
