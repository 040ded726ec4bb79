/** A trace from Jaeger's HTTP API, as a tree with durations. */
import { setTimeout as sleep } from 'node:timers/promises'

/** One span with the spans under it, in order of start. */
export interface SpanNode {
  readonly name: string
  readonly service: string
  /** Milliseconds after the trace's first span. Spans begin at whole ones. */
  readonly startMs: number
  readonly durationMs: number
  readonly failed: boolean
  /** The event that the span is about, if it is about one. */
  readonly eventId: string | null
  readonly children: readonly SpanNode[]
}

interface Attribute {
  readonly key: string
  readonly value: { readonly stringValue?: string }
}

interface JaegerSpan {
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes?: readonly Attribute[]
  readonly status?: { readonly code?: number | string }
}

/** What Jaeger answers with. */
export interface JaegerAnswer {
  readonly result: {
    readonly resourceSpans: readonly {
      readonly resource: { readonly attributes: readonly Attribute[] }
      readonly scopeSpans: readonly { readonly spans: readonly JaegerSpan[] }[]
    }[]
  }
}

interface FlatSpan {
  readonly span: JaegerSpan
  readonly service: string
}

/** A trace as far as it has arrived. */
export interface FetchedTrace {
  readonly roots: readonly SpanNode[]
  /** Whether nothing of it is missing, up to the event's effect. */
  readonly whole: boolean
}

/** Milliseconds between two looks, and for all of them. */
const LOOK_MS = 250
const GIVE_UP_MS = 15_000

/**
 * Fetches trace `id` once it has arrived whole, up to the effect of `eventId`;
 * of any event where that is `null`.
 * Each thread sends its spans by itself, so for some seconds there are parts of
 * it in any order. Resolves to what is there after 15 s; to `null` when no
 * Jaeger answers. Calls `onWait` after each look in vain.
 */
export async function fetchTrace(
  jaeger: string,
  id: string,
  eventId: string | null,
  onWait: () => void,
): Promise<FetchedTrace | null> {
  let roots: readonly SpanNode[] = []
  let count = 0
  for (const from = performance.now(); performance.now() - from < GIVE_UP_MS; await sleep(LOOK_MS)) {
    const answer = await lookUp(jaeger, id)
    if (answer === 'nobody') return null
    const spans = answer === 'unknown' ? [] : spansOf(answer)
    roots = toTree(spans)
    // Twice the same: what belongs under a span that is here may still be on its way.
    if (isWhole(spans, eventId) && spans.length === count) return { roots, whole: true }
    count = spans.length
    onWait()
  }
  return { roots, whole: false }
}

/** The tree of what Jaeger has, and whether it is whole up to the effect of `eventId`, or of any event. */
export function readTrace(answer: JaegerAnswer, eventId: string | null): FetchedTrace {
  const spans = spansOf(answer)
  return { roots: toTree(spans), whole: isWhole(spans, eventId) }
}

/** One span without a parent, the parents of all others, and the event's `process`. */
function isWhole(spans: readonly FlatSpan[], eventId: string | null): boolean {
  const ids = new Set(spans.map(({ span }) => span.spanId))
  const parents = spans.flatMap(({ span }) => span.parentSpanId || [])
  return (
    parents.length === spans.length - 1 &&
    parents.every((parent) => ids.has(parent)) &&
    spans.some(({ span }) => span.name.startsWith('process ') && (eventId === null || eventOf(span) === eventId))
  )
}

async function lookUp(jaeger: string, id: string): Promise<JaegerAnswer | 'unknown' | 'nobody'> {
  const response = await fetch(`${jaeger}/api/v3/traces/${id}`, { signal: AbortSignal.timeout(5_000) }).catch(
    () => null,
  )
  if (!response) return 'nobody'
  return response.ok ? ((await response.json()) as JaegerAnswer) : 'unknown'
}

function spansOf({ result }: JaegerAnswer): readonly FlatSpan[] {
  return result.resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = attribute(resource.attributes, 'service.name') ?? 'unknown'
    return scopeSpans.flatMap(({ spans }) => spans.map((span) => ({ span, service })))
  })
}

function toTree(spans: readonly FlatSpan[]): readonly SpanNode[] {
  const ids = new Set(spans.map(({ span }) => span.spanId))
  const startOf = ({ span }: FlatSpan) => BigInt(span.startTimeUnixNano)
  const sorted = spans.toSorted((a, b) => Number(startOf(a) - startOf(b)))
  const [first] = sorted
  if (!first) return []
  const origin = startOf(first)

  const nodeOf = ({ span, service }: FlatSpan): SpanNode => ({
    name: span.name,
    service,
    startMs: milliseconds(BigInt(span.startTimeUnixNano) - origin),
    durationMs: milliseconds(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)),
    failed: span.status?.code === 2 || span.status?.code === 'STATUS_CODE_ERROR',
    eventId: eventOf(span),
    children: sorted.filter((each) => each.span.parentSpanId === span.spanId).map(nodeOf),
  })
  return sorted.filter(({ span }) => !span.parentSpanId || !ids.has(span.parentSpanId)).map(nodeOf)
}

function eventOf({ attributes = [] }: JaegerSpan): string | null {
  return attribute(attributes, 'messaging.message.id')
}

function attribute(attributes: readonly Attribute[], key: string): string | null {
  return attributes.find((each) => each.key === key)?.value.stringValue ?? null
}

function milliseconds(nanoseconds: bigint): number {
  return Number(nanoseconds) / 1e6
}
