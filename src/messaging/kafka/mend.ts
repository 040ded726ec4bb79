/**
 * What we mend in the kafkajs clients that we make, at run time, since no fix
 * will come from upstream:
 *
 * 1. each of its connections ticks every millisecond when idle and warns of a
 *    negative timeout; ours wait until there is something to wait for;
 * 2. its timeouts follow the wall clock, so that a jump forward fails all that
 *    is in flight and a jump back delays every timeout; ours follow the jump;
 * 3. one leaderless partition makes it refuse the metadata of its whole topic;
 *    ours see that partition as leaderless and go on with the others;
 * 4. it hands out records of aborted transactions that overlap.
 */
import { withAbortedMarked } from './aborted-records.ts'
import type { ClusterInside, ConnectionPoolInside, RequestInside, RequestQueueInside } from './inside.ts'

const FETCH = 1
const METADATA = 3
const CHECK_TIMEOUTS_MS = 250
const RETRY_PENDING_MS = 10

/** Clock steps below this, in milliseconds, are the work of a time daemon and disturb nothing. */
const JUMP_MS = 500

/** Hears of each request. */
export interface RequestWatch {
  /** As it is about to be written to its socket; a throw keeps it back, and is its failure. */
  admit(apiKey: number): void
  /** After it was handed to a connection, with its answer to come. */
  sent(apiKey: number, answer: Promise<unknown>): void
}

/** Mends `cluster`, before its first connection. */
export function mend(cluster: ClusterInside, watch: RequestWatch | null = null): void {
  const { connectionPoolBuilder } = cluster
  const build = connectionPoolBuilder.build.bind(connectionPoolBuilder)
  connectionPoolBuilder.build = async (destination) => {
    const pool = await build(destination)
    for (const { requestQueue } of pool.pool) {
      waitOnlyForWork(requestQueue)
      followClockJumps(requestQueue)
      if (watch !== null) admitAtLast(requestQueue, watch)
    }
    mendAnswers(pool)
    if (watch !== null) report(pool, watch)
    return pool
  }
}

function waitOnlyForWork(queue: RequestQueueInside): void {
  queue.scheduleCheckPendingRequests = () => {
    if (queue.pending.length === 0 || queue.throttleCheckTimeoutId) return
    const throttledMs = queue.throttledUntil - Date.now()
    queue.throttleCheckTimeoutId = setTimeout(
      () => {
        queue.throttleCheckTimeoutId = null
        queue.checkPendingRequests()
      },
      Math.max(throttledMs, RETRY_PENDING_MS),
    )
  }
}

function followClockJumps(queue: RequestQueueInside): void {
  queue.scheduleRequestTimeoutCheck = () => {
    queue.destroy()
    let wall = Date.now()
    let monotonic = performance.now()
    queue.requestTimeoutIntervalId = setInterval(
      () => {
        const jump = Date.now() - wall - (performance.now() - monotonic)
        wall = Date.now()
        monotonic = performance.now()
        if (Math.abs(jump) > JUMP_MS) shift(queue, jump, wall)
        for (const request of [...queue.inflight.values()]) {
          if (wall - request.sentAt > request.requestTimeout) request.timeoutRequest()
        }
        if (!queue.isConnected()) queue.destroy()
      },
      Math.min(queue.requestTimeout, CHECK_TIMEOUTS_MS),
    )
  }
}

/** Requests sent between the jump and its discovery already carry the new time: nothing may lie in the future. */
function shift(queue: RequestQueueInside, jump: number, wall: number): void {
  for (const request of queue.inflight.values()) {
    request.sentAt = Math.min(jump > 0 ? request.sentAt + jump : request.sentAt, wall)
  }
  if (queue.throttledUntil > 0) queue.throttledUntil += jump
}

/** What is done to an answer before kafkajs reads it. */
const answerMends = new Map([
  [FETCH, withAbortedMarked],
  [METADATA, withoutPartitionErrors],
])

function mendAnswers(pool: ConnectionPoolInside): void {
  const send = pool.send.bind(pool)
  pool.send = (request: RequestInside) => {
    const mendAnswer = answerMends.get(request.request.apiKey)
    if (mendAnswer === undefined) return send(request)
    const { response } = request
    return send({
      ...request,
      response: {
        decode: (data) => response.decode(data),
        parse: async (data) => await response.parse(mendAnswer(data)),
      },
    })
  }
}

/** At the last moment: before it a request may wait for its connection, or behind others in the queue. */
function admitAtLast(queue: RequestQueueInside, watch: RequestWatch): void {
  const write = queue.sendSocketRequest.bind(queue)
  queue.sendSocketRequest = (request) => {
    try {
      watch.admit(request.entry.apiKey)
    } catch (error) {
      request.rejected(error)
      return
    }
    write(request)
  }
}

function report(pool: ConnectionPoolInside, watch: RequestWatch): void {
  const send = pool.send.bind(pool)
  pool.send = async (request: RequestInside) => {
    const answer = send(request)
    watch.sent(request.request.apiKey, answer)
    return await answer
  }
}

interface Metadata {
  readonly topicMetadata: readonly { readonly partitionMetadata: readonly object[] }[]
}

/** A partition in trouble has `leader: -1`, which says it all; its code would fail the topic. */
function withoutPartitionErrors(data: unknown): unknown {
  const metadata = data as Metadata
  return {
    ...metadata,
    topicMetadata: metadata.topicMetadata.map((topic) => ({
      ...topic,
      partitionMetadata: topic.partitionMetadata.map((partition) => ({ ...partition, partitionErrorCode: 0 })),
    })),
  }
}
