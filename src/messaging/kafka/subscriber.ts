/**
 * The Kafka subscriber: keeps a membership alive for as long as the
 * subscription lasts. Whatever ends one is waited out and followed by another.
 */
import { PublishError } from '../errors.ts'
import { backoffMs } from '../lifecycle/backoff.ts'
import { systemClock } from '../lifecycle/clock.ts'
import { type LastingState, lastingState } from '../lifecycle/lasting-state.ts'
import { run, type Shutdown } from '../lifecycle/running.ts'
import { countClientCrash } from '../telemetry/measure.ts'
import type { ActiveSubscription, Subscriber, Subscription, SubscriptionStatus } from '../transport.ts'
import { CLOSE_MS, Membership, type MembershipContext, type MembershipEnd } from './membership.ts'
import { MemberIds } from './one-member.ts'
import {
  type KafkaSubscriberOptions,
  type ResolvedSubscriberOptions,
  resolveSubscriberOptions,
} from './subscriber-options.ts'
import { Topics } from './topics.ts'

const BACKOFF = { firstMs: 250, maxMs: 15_000 } as const

/** Milliseconds of undisturbed membership after which the pauses between memberships begin small again. */
const HEALTHY_MS = 60_000

/** Ends in a row for which a coordinator that is not ready is nothing to speak of. */
const COORDINATOR_TRIES = 5

/** Milliseconds between looks for a topic that is not there. */
const MISSING_MS = 2_000

/**
 * Makes a subscriber for the cluster in `options`. Connects at `subscribe`.
 * Throws {@link InvalidOptionError} if an option cannot be used.
 */
export function createKafkaSubscriber(options: KafkaSubscriberOptions): Subscriber {
  const resolved = resolveSubscriberOptions(options)
  return { subscribe: (subscription) => subscribe(subscription, resolved) }
}

interface State {
  membership: Membership | null
  /** What is wrong, as a sentence. */
  failing: string | null
  missing: readonly string[]
  ended: boolean
  /** Memberships that end, until one works. */
  readonly disturbed: LastingState
}

function subscribe(subscription: Subscription, options: ResolvedSubscriberOptions): ActiveSubscription {
  const state: State = { membership: null, failing: null, missing: [], ended: false, disturbed: lastingState() }
  const running = run((shutdown) => keepMember(subscription, options, state, shutdown), { graceMs: options.graceMs })
  return { ...running, status: () => describe(state) }
}

async function keepMember(
  subscription: Subscription,
  options: ResolvedSubscriberOptions,
  state: State,
  shutdown: Shutdown,
): Promise<void> {
  const { draining } = shutdown
  const clock = systemClock
  const context: MembershipContext = { options, subscription, clock, memberIds: new MemberIds(), deliveries: new Map() }
  const topics = new Topics(options, clock)
  for (let attempt = 1; !draining.aborted; attempt += 1) {
    const startedAt = clock.now()
    const end = await oneMembership(context, topics, state, shutdown)
    if (end === null) {
      attempt = 0
      continue
    }
    const { reason } = end
    const fields = { groupId: subscription.groupId, reason }
    if (end.passing && attempt <= COORDINATOR_TRIES) {
      options.logger.info(fields, "The group's coordinator is not ready yet; the group is joined again")
    } else {
      state.failing = reason
      countClientCrash(subscription.groupId)
      state.disturbed.holds(({ times }) =>
        options.logger.warn({ ...fields, times }, 'The membership ended and is built anew, until it works'),
      )
    }
    if (clock.now() - startedAt > HEALTHY_MS) attempt = 1
    await clock.pause(backoffMs(BACKOFF, attempt, clock.random()), draining)
  }
  await topics.close()
  state.ended = true
}

/** Resolves to what went wrong, or `null` if it is to begin anew at once. */
async function oneMembership(
  context: MembershipContext,
  topics: Topics,
  state: State,
  { draining, cancelled }: Shutdown,
): Promise<MembershipEnd | null> {
  const { subscription, clock } = context
  try {
    state.missing = await missingTopics(topics, subscription.topics)
  } catch (error) {
    return { reason: notAnswered(error), passing: false }
  }
  const there = subscription.topics.filter((topic) => !state.missing.includes(topic))
  if (there.length === 0) {
    state.failing = null
    await clock.pause(MISSING_MS, draining)
    return null
  }

  const membership = new Membership(context, there)
  state.membership = membership
  const over = new AbortController()
  const drained = Promise.withResolvers<null>()
  const onDrain = () => drained.resolve(null)
  draining.addEventListener('abort', onDrain, { once: true })
  if (draining.aborted) onDrain()
  void membership.start()
  try {
    void healthy(membership, state, context, over.signal)
    return await Promise.race([membership.ended, drained.promise, untilComplete(topics, state, context, over.signal)])
  } finally {
    over.abort()
    draining.removeEventListener('abort', onDrain)
    // A delivery that hangs must not keep the other partitions from a new membership; its own waits for it.
    await membership.leave(draining.aborted ? cancelled : AbortSignal.timeout(CLOSE_MS))
    state.membership = null
  }
}

/** Looking at topics is a publisher's business too, and its error speaks of publishing: here nothing is published. */
function notAnswered(error: unknown): string {
  if (!(error instanceof PublishError)) return error instanceof Error ? error.message : String(error)
  const { topic, kind, reason } = error
  return kind === 'outage'
    ? `Kafka cannot be reached to look for the topic ${topic}: ${reason}`
    : `The topic ${topic} cannot be looked at: ${reason}`
}

/** Forgets the last failure once the new membership works. */
async function healthy(
  membership: Membership,
  state: State,
  { clock, options, subscription }: MembershipContext,
  over: AbortSignal,
): Promise<void> {
  while (!over.aborted && !membership.joined) await clock.pause(100, over)
  if (over.aborted) return
  state.failing = null
  state.disturbed.ends((lasting) =>
    options.logger.info({ groupId: subscription.groupId, ...lasting }, 'The membership works again'),
  )
}

/** Resolves once a missing topic has appeared, as the group has to be joined anew for it, or when the membership is over. */
async function untilComplete(
  topics: Topics,
  state: State,
  { clock }: MembershipContext,
  over: AbortSignal,
): Promise<null> {
  while (!over.aborted) {
    await clock.pause(MISSING_MS, over)
    if (over.aborted || state.missing.length === 0) continue
    const missing = await missingTopics(topics, state.missing).catch(() => state.missing)
    if (missing.length < state.missing.length) break
  }
  return null
}

async function missingTopics(topics: Topics, names: readonly string[]): Promise<readonly string[]> {
  const descriptions = await Promise.all(names.map(async (name) => await topics.describe(name)))
  return names.filter((_, at) => descriptions[at] === null)
}

function describe({ membership, failing, missing, ended }: State): SubscriptionStatus {
  const readers = membership?.readers ?? []
  const partitions = readers.map(({ where, nextOffset, endOffset }) => ({ ...where, nextOffset, endOffset }))
  if (ended) return { phase: 'ended', reason: null, partitions: [] }
  const reason =
    failing ??
    (missing.length > 0 ? `Topic ${missing.join(', ')} does not exist` : null) ??
    readers.find(({ problem }) => problem !== null)?.problem ??
    null
  if (reason !== null) return { phase: 'failing', reason, partitions }
  const begun = membership?.joined && readers.every((reader) => reader.begun)
  return { phase: begun ? 'running' : 'joining', reason, partitions }
}
