/**
 * Looks for an event in one partition: from a time on, up to the end that the
 * partition has now, with a client of its own that lives as long as the search
 * and joins no group.
 *
 * What it does not find is not there, or the search fails. So it begins no
 * search while the partition has fewer copies than it must have: a record that
 * was stored by the leader alone would be seen later.
 */
import type { Admin } from 'kafkajs'
import { PublishError } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { EventSearch, TopicPartition } from '../transport.ts'
import { closeAdmin, minInsyncReplicas, openAdmin } from './admin-client.ts'
import { Aborted, unlessAborted } from './deadline.ts'
import { DriverFailure, understand } from './failures.ts'
import { headerText } from './incoming-record.ts'
import { type ClusterInside, fetchCommitted, replicatedOffset } from './inside.ts'
import type { ResolvedKafkaOptions } from './options.ts'

/** Milliseconds without a step forward after which a search fails: a transaction that is open keeps what follows from all readers. */
const STALLED_MS = 15_000

/** What a search is made with. */
export interface SearchContext {
  readonly options: ResolvedKafkaOptions
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** Resolves to the offset of the event's first record, or `null`. Rejects with {@link PublishError}. */
export async function findEvent(search: EventSearch, context: SearchContext): Promise<bigint | null> {
  const { signal } = context
  const { topic, partition } = search
  const open = openAdmin(context.options)
  try {
    await unlessAborted(open.connected, signal)
    await unlessAborted(requireCopies(open.admin, open.cluster, search), signal)
    return await unlessAborted(scan(open.cluster, search, context), signal)
  } catch (error) {
    const { kind, reason, cause } = understand(error)
    const given = error instanceof Aborted ? 'ABORTED' : reason
    throw new PublishError({ topic, partition }, { kind, outcome: 'refused', reason: given, cause })
  } finally {
    // A search that was given up goes no further.
    if (signal.aborted) open.sockets.cutOff()
    await closeAdmin(open)
  }
}

async function requireCopies(
  admin: Admin,
  cluster: ClusterInside,
  { topic, partition }: TopicPartition,
): Promise<void> {
  await cluster.addTargetTopic(topic)
  const partitions = cluster.findTopicPartitionMetadata(topic)
  const found = partitions.find(({ partitionId }) => partitionId === partition)
  const where = `${topic}, partition ${partition}`
  if (found === undefined) {
    throw new DriverFailure('destination', 'PARTITION_UNKNOWN', `${where} is none of ${partitions.length}`)
  }
  if (found.leader < 0) throw new DriverFailure('outage', 'LEADER_NOT_AVAILABLE', `${where} has no leader`)
  const required = (await minInsyncReplicas(admin, topic)) ?? 1
  if (found.isr.length < required) {
    throw new DriverFailure('outage', 'NOT_ENOUGH_REPLICAS', `${where} has ${found.isr.length} of ${required} copies`)
  }
}

async function scan(cluster: ClusterInside, search: EventSearch, { clock, signal }: SearchContext) {
  const end = (await replicatedOffset(cluster, search, 'end')) ?? 0n
  let offset = (await replicatedOffset(cluster, search, search.from)) ?? end
  let progressAt = clock.now()
  while (offset < end) {
    if (signal.aborted) throw new Aborted()
    const { messages, nextOffset } = await fetchCommitted(cluster, search, offset)
    const found = messages.find(({ headers }) => headerText(headers?.event_id) === search.eventId)
    if (found !== undefined) return BigInt(found.offset)
    if (nextOffset > offset) progressAt = clock.now()
    else if (clock.now() - progressAt > STALLED_MS) {
      throw new DriverFailure('outage', 'REQUEST_TIMED_OUT', `Nothing can be read beyond offset ${offset}`)
    }
    offset = nextOffset
  }
  return null
}
