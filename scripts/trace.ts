/** A trace from Jaeger's HTTP API, as a tree with durations. */
import { setTimeout as sleep } from 'node:timers/promises'

/** One span with the spans under it, in order of start. */
export interface SpanNode {
  readonly name: string
  readonly service: string
  /** Milliseconds after the trace's first span. */
  readonly startMs: number
  readonly durationMs: number
  readonly failed: boolean
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
  readonly status?: { readonly code?: number | string }
}

interface JaegerAnswer {
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

/** Milliseconds between two looks, and for all of them. */
const LOOK_MS = 250
const GIVE_UP_MS = 15_000

/**
 * Fetches trace `id` once it has arrived whole: a root, and a span named
 * `until`. Resolves to its roots; to whatever is there after 15 s; to `null`
 * when no Jaeger answers.
 */
export async function fetchTrace(jaeger: string, id: string, until: string): Promise<readonly SpanNode[] | null> {
  let roots: readonly SpanNode[] = []
  for (const from = performance.now(); performance.now() - from < GIVE_UP_MS; await sleep(LOOK_MS)) {
    const spans = await lookUp(jaeger, id)
    if (!spans) return null
    roots = toTree(spans)
    if (roots.length === 1 && spans.some(({ span }) => span.name.startsWith(until))) return roots
  }
  return roots
}

/** The tree as lines of text. */
export function drawTree(roots: readonly SpanNode[]): readonly string[] {
  return roots.flatMap((root) => draw(root, '', ''))
}

function draw(node: SpanNode, first: string, rest: string): readonly string[] {
  const at = `${node.startMs.toFixed(1)} ms`.padStart(12)
  const lasts = `${node.durationMs.toFixed(1)} ms`.padStart(10)
  const line = `${at}${lasts}  ${first}${node.name}  [${node.service}]${node.failed ? '  FAILED' : ''}`
  const below = node.children.flatMap((child, index) => {
    const last = index === node.children.length - 1
    return draw(child, `${rest}${last ? '└─ ' : '├─ '}`, `${rest}${last ? '   ' : '│  '}`)
  })
  return [line, ...below]
}

/** All spans so far; none when Jaeger does not know the trace yet; `null` when nobody answers. */
async function lookUp(jaeger: string, id: string): Promise<readonly FlatSpan[] | null> {
  const response = await fetch(`${jaeger}/api/v3/traces/${id}`, { signal: AbortSignal.timeout(5_000) }).catch(
    () => null,
  )
  if (!response) return null
  if (!response.ok) return []
  const { result } = (await response.json()) as JaegerAnswer
  return result.resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const name = resource.attributes.find(({ key }) => key === 'service.name')
    const service = name?.value.stringValue ?? 'unknown'
    return scopeSpans.flatMap(({ spans }) => spans.map((span) => ({ span, service })))
  })
}

function toTree(spans: readonly FlatSpan[]): readonly SpanNode[] {
  const ids = new Set(spans.map(({ span }) => span.spanId))
  const startOf = ({ span }: FlatSpan) => BigInt(span.startTimeUnixNano)
  const sorted = spans.toSorted((a, b) => (startOf(a) < startOf(b) ? -1 : 1))
  const [first] = sorted
  if (!first) return []
  const origin = startOf(first)

  const nodeOf = ({ span, service }: FlatSpan): SpanNode => ({
    name: span.name,
    service,
    startMs: milliseconds(BigInt(span.startTimeUnixNano) - origin),
    durationMs: milliseconds(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)),
    failed: span.status?.code === 2 || span.status?.code === 'STATUS_CODE_ERROR',
    children: sorted.filter((each) => each.span.parentSpanId === span.spanId).map(nodeOf),
  })
  return sorted.filter(({ span }) => !span.parentSpanId || !ids.has(span.parentSpanId)).map(nodeOf)
}

function milliseconds(nanoseconds: bigint): number {
  return Number(nanoseconds) / 1e6
}
