/** Protobuf's wire format, as far as OTLP uses it. Fields that nobody asks for are skipped. */

/** The fields of one message, by their number, in the order of their values. */
export type Message = ReadonlyMap<number, readonly (number | bigint | Buffer)[]>

/** What a list of attributes says. */
export function attributes(pairs: readonly Message[]): Record<string, unknown> {
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

/** The messages in a field. */
export function messages(message: Message, number: number): Message[] {
  return (message.get(number) ?? []).flatMap((value) => (Buffer.isBuffer(value) ? [read(value)] : []))
}

function bytes(message: Message, number: number): Buffer | null {
  const [value] = message.get(number) ?? []
  return Buffer.isBuffer(value) ? value : null
}

/** A field's text; empty where it is not set. */
export function text(message: Message, number: number): string {
  return bytes(message, number)?.toString('utf8') ?? ''
}

/** A field's bytes in hex; empty where it is not set. */
export function hex(message: Message, number: number): string {
  return bytes(message, number)?.toString('hex') ?? ''
}

/** A field's number; 0 where it is not set. */
export function scalar(message: Message, number: number): number | bigint {
  const [value] = message.get(number) ?? []
  return value === undefined || Buffer.isBuffer(value) ? 0 : value
}

/** One level of a message: what is in it stays bytes until it is asked for. */
export function read(body: Buffer): Message {
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
