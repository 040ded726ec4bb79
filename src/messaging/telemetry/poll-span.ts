/**
 * The traces of a consumer's batches: `poll <topic>` for what was applied in
 * one go, with the statements of its transaction and, afterwards, the commit of
 * the offset that it has reached.
 *
 * Apart from the events' traces, as those of the relay's batches are, and drawn
 * as they are. The offset is committed by the driver, for many batches at once
 * and when those are over: it is told here which of them it commits.
 */
import { ROOT_CONTEXT, type SpanContext, SpanKind, trace } from '@opentelemetry/api'
import type { TraceContext } from '../envelope.ts'
import type { TopicPartition } from '../transport.ts'
import {
  ATTR_BATCH,
  ATTR_BATCH_COUNT,
  ATTR_DESTINATION,
  ATTR_GROUP,
  ATTR_OFFSET,
  ATTR_OPERATION_NAME,
  ATTR_OPERATION_TYPE,
  ATTR_PARTITION,
  ATTR_SYSTEM,
  KAFKA,
} from './attributes.ts'
import { isDrawn, linksTo } from './batch-draw.ts'
import { endSpan, fail, tracer, within } from './span.ts'

/** Batches of one partition that wait for their commit at most: a driver may never commit. */
const MAX_AWAITING = 64

/** A consumer's batch, as its span. */
export interface Poll {
  /** For links from the events' own spans; `null` when the batch is not recorded. */
  readonly context: SpanContext | null
  /** Says that it was not applied in one go, and for which error, if any. */
  fail(error: unknown): void
  /** Says that everything below `nextOffset` is finished: the commit of that belongs to this batch. */
  finished(nextOffset: bigint): void
}

interface PolledPartition extends TopicPartition {
  /** The consumer group. */
  readonly group: string
}

interface Awaiting {
  readonly nextOffset: bigint
  readonly poll: SpanContext
}

const awaitingCommit = new Map<string, Awaiting[]>()

/** Runs `work`, which applies a batch, in `poll <topic>` if that was drawn: a root of its own. */
export async function pollSpan<T>(
  where: PolledPartition,
  messages: () => readonly { readonly id: string | null; readonly trace: TraceContext | null }[],
  work: (poll: Poll) => Promise<T>,
): Promise<T> {
  if (!isDrawn()) return await work(untracedPoll)
  const polled = messages()
  const span = tracer().startSpan(
    `poll ${where.topic}`,
    {
      kind: SpanKind.CLIENT,
      links: linksTo(polled),
      attributes: {
        [ATTR_BATCH]: true,
        [ATTR_BATCH_COUNT]: polled.length,
        ...operation('poll', 'receive', where),
      },
    },
    ROOT_CONTEXT,
  )
  const recorded = span.isRecording() ? span.spanContext() : null
  return await within(span, ROOT_CONTEXT, () =>
    work({
      context: recorded,
      fail: (error) => fail(span, error),
      finished: (nextOffset) => {
        if (recorded !== null) awaitCommit(where, { nextOffset, poll: recorded })
      },
    }),
  )
}

const untracedPoll: Poll = { context: null, fail: () => {}, finished: () => {} }

/** Runs `work`, which commits `offsets` of `group`, in a `commit <topic>` under each recorded batch that they finish. */
export async function traceCommit<T>(
  group: string,
  offsets: readonly (TopicPartition & { readonly offset: string })[],
  work: () => Promise<T>,
): Promise<T> {
  if (awaitingCommit.size === 0) return await work()
  const spans = offsets.flatMap(({ topic, partition, offset }) => {
    const where = { topic, partition, group }
    return reached(where, BigInt(offset)).map(({ poll }) =>
      tracer().startSpan(
        `commit ${topic}`,
        {
          kind: SpanKind.CLIENT,
          attributes: { ...operation('commit', 'settle', where), [ATTR_OFFSET]: Number(offset) },
        },
        trace.setSpanContext(ROOT_CONTEXT, poll),
      ),
    )
  })
  try {
    const result = await work()
    for (const span of spans) span.end()
    for (const { topic, partition, offset } of offsets) settle({ topic, partition, group }, BigInt(offset))
    return result
  } catch (error) {
    // The next commit repeats it.
    for (const span of spans) endSpan(span, error)
    throw error
  }
}

function operation(name: string, type: string, { topic, partition, group }: PolledPartition) {
  return {
    [ATTR_SYSTEM]: KAFKA,
    [ATTR_OPERATION_NAME]: name,
    [ATTR_OPERATION_TYPE]: type,
    [ATTR_DESTINATION]: topic,
    [ATTR_PARTITION]: String(partition),
    [ATTR_GROUP]: group,
  }
}

function awaitCommit(where: PolledPartition, batch: Awaiting): void {
  const place = placeOf(where)
  awaitingCommit.set(place, [...(awaitingCommit.get(place) ?? []), batch].slice(-MAX_AWAITING))
}

function reached(where: PolledPartition, offset: bigint): readonly Awaiting[] {
  return (awaitingCommit.get(placeOf(where)) ?? []).filter(({ nextOffset }) => nextOffset <= offset)
}

function settle(where: PolledPartition, offset: bigint): void {
  const place = placeOf(where)
  const left = (awaitingCommit.get(place) ?? []).filter(({ nextOffset }) => nextOffset > offset)
  if (left.length > 0) awaitingCommit.set(place, left)
  else awaitingCommit.delete(place)
}

function placeOf({ group, topic, partition }: PolledPartition): string {
  return `${group}/${topic}/${partition}`
}
