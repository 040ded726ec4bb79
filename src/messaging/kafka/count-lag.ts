/** How far consumer groups are behind, as the brokers know it: for groups of any service and any language. */
import { InvalidOptionError, PublishError } from '../errors.ts'
import { systemClock } from '../lifecycle/clock.ts'
import { requireKnown, requireText } from '../options.ts'
import { closeAdmin, openAdmin } from './admin-client.ts'
import { Aborted, startDeadline, unlessAborted } from './deadline.ts'
import { understand } from './failures.ts'
import { replicatedOffset } from './inside.ts'
import { type KafkaOptions, kafkaOptions, resolveKafkaOptions } from './options.ts'

/** Milliseconds for an answer. */
const COUNT_MS = 10_000
const UNKNOWN_TOPIC = 'UNKNOWN_TOPIC_OR_PARTITION'

/** Milliseconds between two questions while brokers do not know who is to answer. */
const AGAIN_MS = 250

/** Whose lag, on which topic. */
export interface LagOptions extends KafkaOptions {
  /** The topic's name. */
  readonly topic: string
  /** At least one, all known to the brokers. Where a group has committed nothing on a partition, it has all of it before it. */
  readonly groups: readonly string[]
}

/**
 * Resolves to how many records of `topic` lie before `groups`, taken together:
 * what they have committed, against the end of each partition. Rejects with
 * {@link PublishError} when the brokers do not tell, and with
 * {@link InvalidOptionError} if an option cannot be used or the brokers know no
 * such group, which would never catch up, or have not known such a topic for ten seconds.
 */
export async function countLag(options: LagOptions): Promise<bigint> {
  requireKnown(options, { ...kafkaOptions, topic: true, groups: true })
  const { topic, groups, ...kafka } = options
  requireText('topic', topic)
  if (!Array.isArray(groups) || groups.length === 0)
    throw new InvalidOptionError('groups', groups, 'a list of at least one')
  for (const group of groups) requireText('groups', group)
  const open = openAdmin(resolveKafkaOptions(kafka))
  let isMissing = false
  using deadline = startDeadline(COUNT_MS, new AbortController().signal)
  try {
    await unlessAborted(open.connected, deadline.signal)
    return await unlessAborted(countUntilTold(), deadline.signal)
  } catch (error) {
    if (error instanceof InvalidOptionError) throw error
    if (isMissing) throw new InvalidOptionError('topic', topic, 'one that the brokers have')
    const { kind, reason, cause } = understand(error)
    const said = error instanceof Aborted ? 'REQUEST_TIMED_OUT' : reason
    throw new PublishError({ topic }, { kind, outcome: 'refused', reason: said, cause })
  } finally {
    await closeAdmin(open)
  }

  /** A group's coordinator moves about, above all when the group has just begun, and brokers hear of a topic one after the other. */
  async function countUntilTold(): Promise<bigint> {
    for (;;) {
      try {
        return await count()
      } catch (error) {
        if (error instanceof InvalidOptionError) throw error
        const { kind, reason } = understand(error)
        isMissing = reason === UNKNOWN_TOPIC
        if ((kind !== 'outage' && !isMissing) || deadline.signal.aborted) throw error
        await systemClock.pause(AGAIN_MS, deadline.signal)
      }
    }
  }

  async function count(): Promise<bigint> {
    // First what was committed, then the ends: what comes in between counts.
    const committed = await Promise.all(groups.map((groupId) => committedBy(groupId)))
    const ends = await open.admin.fetchTopicOffsets(topic)
    let lag = 0n
    for (const { partition, low } of ends) {
      // What lies behind an open transaction is to be read too.
      const end = (await replicatedOffset(open.cluster, { topic, partition }, 'end')) ?? 0n
      for (const offsets of committed) {
        const next = offsets.get(partition) ?? BigInt(low)
        if (end > next) lag += end - next
      }
    }
    return lag
  }

  /** Brokers call a group dead that has neither members nor offsets, as one that never was. */
  async function exists(groupId: string): Promise<boolean> {
    const { groups: described } = await open.admin.describeGroups([groupId])
    return described.some(({ state }) => state !== 'Dead')
  }

  async function committedBy(groupId: string): Promise<ReadonlyMap<number, bigint>> {
    const [entry] = await open.admin.fetchOffsets({ groupId, topics: [topic] })
    const known = (entry?.partitions ?? []).filter(({ offset }) => BigInt(offset) >= 0n)
    if (known.length === 0 && !(await exists(groupId))) {
      throw new InvalidOptionError('groups', groupId, 'groups that the brokers know')
    }
    return new Map(known.map(({ partition, offset }) => [partition, BigInt(offset)]))
  }
}
