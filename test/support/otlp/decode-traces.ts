/**
 * Reads what an OTLP exporter sends: `ExportTraceServiceRequest` in protobuf's
 * wire format, as far as tests look at it. Unknown fields are skipped.
 */

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

type Field = readonly [number: number, value: bigint | Buffer]

/** The spans of one request's body. */
export function decodeTraces(body: Buffer): ExportedSpan[] {
  return messages(body, 1).flatMap((resourceSpans) => {
    const resource = attributes(messages(resourceSpans, 1).flatMap((part) => messages(part, 1)))
    return messages(resourceSpans, 2)
      .flatMap((scopeSpans) => messages(scopeSpans, 2))
      .map((span) => decodeSpan(span, resource))
  })
}

function decodeSpan(body: Buffer, resource: Record<string, unknown>): ExportedSpan {
  const [status] = messages(body, 15)
  return {
    traceId: hex(body, 1),
    spanId: hex(body, 2),
    parentSpanId: hex(body, 4),
    name: messages(body, 5)[0]?.toString('utf8') ?? '',
    kind: Number(scalar(body, 6)),
    startNs: scalar(body, 7),
    endNs: scalar(body, 8),
    attributes: attributes(messages(body, 9)),
    links: messages(body, 13).map((link) => ({ traceId: hex(link, 1), spanId: hex(link, 2) })),
    status: status ? Number(scalar(status, 3)) : 0,
    service: String(resource['service.name']),
    resource,
  }
}

function attributes(pairs: readonly Buffer[]): Record<string, unknown> {
  return Object.fromEntries(
    pairs.map((pair) => [messages(pair, 1)[0]?.toString('utf8') ?? '', anyValue(messages(pair, 2)[0])]),
  )
}

function anyValue(body: Buffer | undefined): unknown {
  const [field] = body ? fields(body) : []
  if (!field) return null
  const [number, value] = field
  if (number === 1 && Buffer.isBuffer(value)) return value.toString('utf8')
  if (number === 2) return value === 1n
  if (number === 3 && typeof value === 'bigint') return Number(BigInt.asIntN(64, value))
  if (number === 4 && typeof value === 'bigint') {
    const bytes = Buffer.alloc(8)
    bytes.writeBigUInt64LE(value)
    return bytes.readDoubleLE()
  }
  return value
}

function messages(body: Buffer, number: number): Buffer[] {
  return fields(body).flatMap(([n, value]) => (n === number && Buffer.isBuffer(value) ? [value] : []))
}

function scalar(body: Buffer, number: number): bigint {
  for (const [n, value] of fields(body)) if (n === number && typeof value === 'bigint') return value
  return 0n
}

function hex(body: Buffer, number: number): string {
  return messages(body, number)[0]?.toString('hex') ?? ''
}

function fields(body: Buffer): Field[] {
  const found: Field[] = []
  let at = 0
  const varint = () => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = body.readUInt8(at++)
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
  }
  while (at < body.length) {
    const tag = Number(varint())
    const number = tag >> 3
    switch (tag & 7) {
      case 0:
        found.push([number, varint()])
        break
      case 1:
        found.push([number, body.readBigUInt64LE(at)])
        at += 8
        break
      case 2: {
        const length = Number(varint())
        found.push([number, body.subarray(at, at + length)])
        at += length
        break
      }
      case 5:
        found.push([number, BigInt(body.readUInt32LE(at))])
        at += 4
        break
      default:
        throw new Error(`Wire type ${tag & 7} is not known`)
    }
  }
  return found
}
