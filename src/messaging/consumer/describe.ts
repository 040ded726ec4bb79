/** A consumer's state in sentences for an operator: which event, where and why, never what is in it. */
import type { SubscriptionStatus } from '../transport.ts'
import type { Board } from './board.ts'
import type { ConsumerStatus, PartitionStatus } from './status.ts'

/** How many events or partitions are named in full; the rest is a number. */
const NAMED = 10
/** A conflict with another transaction passes at the next try; only what lasts makes a consumer unready. */
const PASSING_TRIES = 1

/** Readiness, from what the subscription and the deliveries say; `databaseProblem` is that of a call that hangs. */
export function describe(
  subscription: SubscriptionStatus,
  board: Board,
  databaseProblem: string | null,
): ConsumerStatus {
  const { phase, reason } = subscription
  const { holding, parkedCount, requestsProblem, unrelayed } = board
  const outages = board.outages.filter(({ tries }) => tries > PASSING_TRIES)
  return {
    ready: phase === 'running' && holding.length === 0 && outages.length === 0 && databaseProblem === null,
    phase,
    partitions: subscription.partitions.map(
      ({ topic, partition, nextOffset, endOffset }): PartitionStatus => ({
        topic,
        partition,
        nextOffset: Number(nextOffset),
        lag: endOffset > nextOffset ? Number(endOffset - nextOffset) : 0,
      }),
    ),
    holding,
    parkedCount,
    problems: [
      ...(phase === 'joining' ? ['The consumer has not joined its group yet'] : []),
      ...(phase === 'failing' ? [`The subscription fails: ${reason ?? 'no reason given'}`] : []),
      ...(phase === 'ended' ? ['The subscription has ended'] : []),
      ...(databaseProblem === null ? [] : [databaseProblem]),
      ...named(
        outages.map(
          ({ topic, partition, tries, reason }) =>
            `${topic}, partition ${partition}: the consumer's database cannot be used (${reason}, ${tries} tries)`,
        ),
      ),
      ...named(
        holding.map(
          (event) =>
            `${event.topic}, partition ${event.partition}, offset ${event.offset}: ${event.eventType} ${event.eventId} of ` +
            `${event.aggregateType} ${event.aggregateId} has failed ${event.attempts} times (${event.reason}) and holds its partition`,
        ),
      ),
      ...(requestsProblem === null ? [] : [requestsProblem]),
      ...(unrelayed
        ? [
            'Dead letters wait to be published, and no relay runs on this database: run one, or set deadLetterTopics: false',
          ]
        : []),
      ...(parkedCount > 0
        ? [
            `${parkedCount === 1 ? '1 key is parked and waits' : `${parkedCount} keys are parked and wait`} for an operator`,
          ]
        : []),
    ],
  }
}

function named(sentences: readonly string[]): readonly string[] {
  const more = sentences.length - NAMED
  return more > 0 ? [...sentences.slice(0, NAMED), `… and ${more} more`] : sentences
}
