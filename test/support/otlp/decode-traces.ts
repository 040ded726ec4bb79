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

/** The fields of one message, by their number, in the order of their values. */
type Message = ReadonlyMap<number, readonly (number | bigint | Buffer)[]>

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

function attributes(pairs: readonly Message[]): Record<string, unknown> {
  return Object.fromEntries(pairs.map((pair) => [text(pair, 1), anyValue(messages(pair, 2)[0])]))
}

function anyValue(value: Message | undefined): unknown {
  const [field] = value ?? []
  if (!field) return null
  const [number, [content]] = field
  if (number === 1 && Buffer.isBuffer(content)) return content.toString('utf8')
  if (number === 2) return content === 1
  if (number === 3 && content !== undefined && !Buffer.isBuffer(content))
    return Number(BigInt.asIntN(64, BigInt(content)))
  if (number === 4 && typeof content === 'bigint') {
    const bytes = Buffer.alloc(8)
    bytes.writeBigUInt64LE(content)
    return bytes.readDoubleLE()
  }
  return content
}

function messages(message: Message, number: number): Message[] {
  return (message.get(number) ?? []).flatMap((value) => (Buffer.isBuffer(value) ? [read(value)] : []))
}

function bytes(message: Message, number: number): Buffer | null {
  const [value] = message.get(number) ?? []
  return Buffer.isBuffer(value) ? value : null
}

function text(message: Message, number: number): string {
  return bytes(message, number)?.toString('utf8') ?? ''
}

function hex(message: Message, number: number): string {
  return bytes(message, number)?.toString('hex') ?? ''
}

function scalar(message: Message, number: number): number | bigint {
  const [value] = message.get(number) ?? []
  return value === undefined || Buffer.isBuffer(value) ? 0 : value
}

/** One level: what is in it stays bytes until it is asked for. */
function read(body: Buffer): Message {
  const found = new Map<number, (number | bigint | Buffer)[]>()
  let at = 0
  const varint = (): number | bigint => {
    let value = 0
    for (let factor = 1; factor <= 2 ** 42; factor *= 128) {
      const byte = body.readUInt8(at++)
      value += (byte & 0x7f) * factor
      if (byte < 0x80) return value
    }
    // More than a number can hold exactly.
    let large = BigInt(value)
    for (let shift = 49n; ; shift += 7n) {
      const byte = body.readUInt8(at++)
      large |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return large
    }
  }
  const content = (wireType: number): number | bigint | Buffer => {
    switch (wireType) {
      case 0:
        return varint()
      case 1:
        at += 8
        return body.readBigUInt64LE(at - 8)
      case 2: {
        const length = Number(varint())
        at += length
        return body.subarray(at - length, at)
      }
      case 5:
        at += 4
        return body.readUInt32LE(at - 4)
      default:
        throw new Error(`Wire type ${wireType} is not known`)
    }
  }
  while (at < body.length) {
    const tag = Number(varint())
    const value = content(tag & 7)
    const values = found.get(tag >> 3)
    if (values) values.push(value)
    else found.set(tag >> 3, [value])
  }
  return found
}
