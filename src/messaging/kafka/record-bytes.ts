/**
 * Turns records into bytes before kafkajs sees them: it throws in the middle of
 * a batch on some wrong types, and other clients silently send null for them,
 * which is a tombstone.
 */
import type { Message } from 'kafkajs'
import type { OutgoingRecord } from '../transport.ts'
import { DriverFailure } from './failures.ts'

/** The batch as kafkajs takes it, and how many bytes of keys, values and headers are in it. */
export interface EncodedBatch {
  readonly messages: readonly Message[]
  readonly bytes: number
}

/**
 * Encodes `records` for `partition`, all with the time `timestampMs`, so that a
 * repeat is the same. Throws {@link DriverFailure} of kind `record` for what is
 * neither text nor bytes.
 */
export function encodeRecords(
  records: readonly OutgoingRecord[],
  partition: number,
  timestampMs: number,
): EncodedBatch {
  const timestamp = String(timestampMs)
  let bytes = 0
  const messages = records.map(({ key, value, headers }) => {
    const message = { key: encodeText(key, 'key'), value: encodeValue(value), headers: encodeHeaders(headers) }
    bytes += message.key.length + (message.value?.length ?? 0)
    for (const [name, header] of Object.entries(message.headers)) bytes += name.length + header.length
    return { ...message, partition, timestamp }
  })
  return { messages, bytes }
}

function encodeValue(value: unknown): Buffer | null {
  if (value === null || Buffer.isBuffer(value)) return value
  return encodeText(value, 'value')
}

function encodeHeaders(headers: Readonly<Record<string, unknown>>): Record<string, Buffer> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, encodeText(value, 'header')]))
}

/** A lone surrogate would become a replacement character: another key than the one that was given. */
function encodeText(text: unknown, part: 'key' | 'value' | 'header'): Buffer {
  if (typeof text === 'string' && text.isWellFormed()) return Buffer.from(text)
  const what = typeof text === 'string' ? 'not well-formed text' : `of type ${typeof text}`
  throw new DriverFailure('record', 'INVALID_RECORD', `A record's ${part} is ${what}`)
}
