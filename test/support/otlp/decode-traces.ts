/** Reads the spans of what an OTLP exporter sends: `ExportTraceServiceRequest`, as far as tests look at it. */
import { attributes, hex, type Message, messages, read, scalar, text } from './wire.ts'

/** One span as it was exported. */
export interface ExportedSpan {
  readonly traceId: string
  readonly spanId: string
  /** Empty for a root. */
  readonly parentSpanId: string
  readonly name: string
  /** internal 1, server 2, client 3, producer 4, consumer 5. */
  readonly kind: number
  readonly startNs: bigint
  readonly endNs: bigint
  readonly attributes: Readonly<Record<string, unknown>>
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[]
  /** unset 0, ok 1, error 2. */
  readonly status: number
  /** The resource's `service.name`. */
  readonly service: string
  readonly resource: Readonly<Record<string, unknown>>
}

/** The spans of one request's body. */
export function decodeTraces(body: Buffer): ExportedSpan[] {
  return messages(read(body), 1).flatMap((resourceSpans) => {
    const resource = attributes(messages(resourceSpans, 1).flatMap((part) => messages(part, 1)))
    return messages(resourceSpans, 2)
      .flatMap((scopeSpans) => messages(scopeSpans, 2))
      .map((span) => decodeSpan(span, resource))
  })
}

function decodeSpan(span: Message, resource: Record<string, unknown>): ExportedSpan {
  const [status] = messages(span, 15)
  return {
    traceId: hex(span, 1),
    spanId: hex(span, 2),
    parentSpanId: hex(span, 4),
    name: text(span, 5),
    kind: Number(scalar(span, 6)),
    startNs: BigInt(scalar(span, 7)),
    endNs: BigInt(scalar(span, 8)),
    attributes: attributes(messages(span, 9)),
    links: messages(span, 13).map((link) => ({ traceId: hex(link, 1), spanId: hex(link, 2) })),
    status: status ? Number(scalar(status, 3)) : 0,
    service: String(resource['service.name']),
    resource,
  }
}
