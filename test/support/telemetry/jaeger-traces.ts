/** Traces as Jaeger's HTTP API gives them, version 3: OTLP in JSON. */
import type { OutlinedSpan } from './outline.ts'
import { until } from './wait.ts'

/** One span as Jaeger has stored it. */
export interface StoredSpan extends OutlinedSpan {
  readonly traceId: string
  readonly attributes: Readonly<Record<string, unknown>>
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[]
}

interface Attribute {
  readonly key: string
  readonly value: Readonly<Record<string, unknown>>
}

interface TraceAnswer {
  readonly result: {
    readonly resourceSpans: readonly {
      readonly resource: { readonly attributes: readonly Attribute[] }
      readonly scopeSpans: readonly {
        readonly spans: readonly {
          readonly traceId: string
          readonly spanId: string
          readonly parentSpanId?: string
          readonly name: string
          readonly kind?: number
          readonly attributes?: readonly Attribute[]
          readonly links?: readonly { readonly traceId: string; readonly spanId: string }[]
          readonly status?: { readonly code?: number }
        }[]
      }[]
    }[]
  }
}

/** The stored spans of a trace; none while it is not known. */
export async function readTrace(url: string, traceId: string): Promise<readonly StoredSpan[]> {
  const response = await fetch(`${url}/api/v3/traces/${traceId}`)
  if (!response.ok) return []
  return spansOf((await response.json()) as TraceAnswer)
}

/** Asks until the trace holds what `enough` wants. */
export async function untilTraced(
  url: string,
  traceId: string,
  enough: (spans: readonly StoredSpan[]) => boolean,
): Promise<readonly StoredSpan[]> {
  let seen = ''
  return await until('The trace', async () => {
    const spans = await readTrace(url, traceId)
    seen = spans.map(({ name }) => name).join(', ')
    return enough(spans) ? spans : null
  }).catch((error: unknown) => {
    throw new Error(`The trace does not hold what was awaited, but ${seen || 'nothing'}`, { cause: error })
  })
}

/** The traces of a service of which some span has this name, since the time given. */
export async function findTraces(
  url: string,
  { service, name, since }: { readonly service: string; readonly name: string; readonly since: Date },
): Promise<readonly (readonly StoredSpan[])[]> {
  const query = new URLSearchParams({
    'query.service_name': service,
    'query.operation_name': name,
    'query.num_traces': '100',
    'query.start_time_min': since.toISOString(),
    'query.start_time_max': new Date(Date.now() + 60_000).toISOString(),
  })
  const response = await fetch(`${url}/api/v3/traces?${query}`)
  if (!response.ok) return []
  const spans = spansOf((await response.json()) as TraceAnswer)
  return [...Map.groupBy(spans, ({ traceId }) => traceId).values()]
}

function spansOf({ result }: TraceAnswer): StoredSpan[] {
  return result.resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = String(read(resource.attributes)['service.name'])
    return scopeSpans
      .flatMap(({ spans }) => spans)
      .map((span) => ({
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId ?? '',
        name: span.name,
        kind: span.kind ?? 0,
        service,
        status: span.status?.code ?? 0,
        attributes: read(span.attributes ?? []),
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ traceId, spanId })),
      }))
  })
}

function read(attributes: readonly Attribute[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))
}
