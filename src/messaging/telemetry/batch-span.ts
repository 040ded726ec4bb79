/**
 * The traces of the relay's batches: `relay <outbox>` for what one read has
 * found, with the read, each request to the broker and the marks under it.
 *
 * They are apart from the events' traces, since a batch carries events of many
 * requests; links lead from one to the other. One in a thousand is recorded,
 * and each relay batch that repeats a failed one. While none is open, nothing
 * here costs more than a comparison.
 */
import { type Context, ROOT_CONTEXT, type Span, type SpanContext, SpanKind, trace } from '@opentelemetry/api'
import type { OutboxEvent } from '../envelope.ts'
import type { TopicPartition } from '../transport.ts'
import {
  ATTR_BATCH,
  ATTR_BATCH_COUNT,
  ATTR_DESTINATION,
  ATTR_OPERATION_NAME,
  ATTR_OPERATION_TYPE,
  ATTR_OUTBOX,
  ATTR_PARTITION,
  ATTR_SYSTEM,
  KAFKA,
  outboxName,
} from './attributes.ts'
import { isDrawn, linksTo } from './batch-draw.ts'
import { endSpan, fail, tracer } from './span.ts'

/** Milliseconds after which a batch that never came to its end is closed: its lanes were lost, or its keys are held. */
const GIVE_UP_AFTER_MS = 60_000

/** One request to the broker, as part of the batches that it serves. */
export interface BatchSend {
  /** Of the batch span, for links from the events' own; `null` when there is none. */
  readonly context: SpanContext | null
  /** Ends it, as failed if `error` is given. A batch that failed is over: its events are read anew. */
  end(error?: unknown): void
}

interface OpenBatch {
  readonly span: Span
  readonly context: Context
  readonly openedAt: number
  /** Events that are neither marked nor given up. */
  leftCount: number
}

const open = new Set<OpenBatch>()
const batchOf = new WeakMap<OutboxEvent, OpenBatch>()

/** Notes what a read that began at `startedAt` (Unix milliseconds) has found. */
export function traceRead(events: readonly OutboxEvent[], startedAt: number): void {
  if (events.length === 0 || !isDrawn()) return
  const batch = openBatch(events, startedAt)
  if (batch === null) return
  tracer()
    .startSpan(
      'select outbox',
      { kind: SpanKind.CLIENT, startTime: startedAt, attributes: { [ATTR_BATCH_COUNT]: events.length } },
      batch.context,
    )
    .end()
}

/** Starts `send <topic>` for a request that carries `events`. `attempt` counts from 1. */
export function startBatchSend(
  events: readonly OutboxEvent[],
  { topic, partition, attempt }: TopicPartition & { readonly attempt: number },
): BatchSend {
  if (open.size === 0 && attempt === 1) return untracedSend
  const batches = batchesOf(events)
  if (batches.size === 0 && attempt > 1) {
    const repeated = openBatch(events, Date.now())
    if (repeated !== null) batches.set(repeated, events.length)
  }
  const [first] = batches.keys()
  if (first === undefined) return untracedSend

  const spans = [...batches].map(([{ context }, share]) =>
    tracer().startSpan(
      `send ${topic}`,
      {
        kind: SpanKind.CLIENT,
        attributes: {
          [ATTR_SYSTEM]: KAFKA,
          [ATTR_OPERATION_NAME]: 'send',
          [ATTR_OPERATION_TYPE]: 'send',
          [ATTR_DESTINATION]: topic,
          [ATTR_PARTITION]: String(partition),
          [ATTR_BATCH_COUNT]: share,
          [ATTR_OUTBOX]: outboxName(),
        },
      },
      context,
    ),
  )
  return {
    context: first.span.spanContext(),
    end(error) {
      for (const span of spans) endSpan(span, error)
      if (error !== undefined) release(events, error)
    },
  }
}

/** Runs `work`, which marks `events` as published, in `mark outbox`. Their batches end with their last event. */
export async function traceMark<T>(events: readonly OutboxEvent[], work: () => Promise<T>): Promise<T> {
  if (open.size === 0) return await work()
  const spans = [...batchesOf(events)].map(([{ context }, share]) =>
    tracer().startSpan('mark outbox', { kind: SpanKind.CLIENT, attributes: { [ATTR_BATCH_COUNT]: share } }, context),
  )
  try {
    const result = await work()
    for (const span of spans) span.end()
    release(events)
    return result
  } catch (error) {
    // Marked again later: the batch stays open.
    for (const span of spans) endSpan(span, error)
    throw error
  }
}

const untracedSend: BatchSend = { context: null, end: () => {} }

function openBatch(events: readonly OutboxEvent[], startTime: number): OpenBatch | null {
  giveUpOld()
  const span = tracer().startSpan(
    `relay ${outboxName()}`,
    {
      startTime,
      links: linksTo(events),
      attributes: { [ATTR_BATCH]: true, [ATTR_OUTBOX]: outboxName(), [ATTR_BATCH_COUNT]: events.length },
    },
    ROOT_CONTEXT,
  )
  if (!span.isRecording()) return null
  const batch: OpenBatch = {
    span,
    context: trace.setSpan(ROOT_CONTEXT, span),
    openedAt: performance.now(),
    leftCount: events.length,
  }
  open.add(batch)
  for (const event of events) batchOf.set(event, batch)
  return batch
}

/** The open batches that `events` belong to, each with its share of them. */
function batchesOf(events: readonly OutboxEvent[]): Map<OpenBatch, number> {
  const shares = new Map<OpenBatch, number>()
  for (const event of events) {
    const batch = batchOf.get(event)
    if (batch !== undefined) shares.set(batch, (shares.get(batch) ?? 0) + 1)
  }
  return shares
}

function release(events: readonly OutboxEvent[], error?: unknown): void {
  for (const [batch, share] of batchesOf(events)) {
    batch.leftCount -= share
    if (error !== undefined) fail(batch.span, error)
    if (batch.leftCount <= 0) close(batch)
  }
  for (const event of events) batchOf.delete(event)
}

function giveUpOld(): void {
  const oldest = performance.now() - GIVE_UP_AFTER_MS
  for (const batch of open) if (batch.openedAt < oldest) close(batch)
}

function close(batch: OpenBatch): void {
  batch.span.end()
  open.delete(batch)
}
