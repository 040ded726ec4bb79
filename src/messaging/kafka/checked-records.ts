/**
 * Checks records before kafkajs sees them: it throws in the middle of a batch
 * on some wrong types, and other clients silently send null for them, which is
 * a tombstone. Text stays text, since kafkajs writes it straight into the
 * request; bytes of our own would be copied once more.
 */
import type { Message } from 'kafkajs'
import type { OutgoingRecord } from '../transport.ts'
import { DriverFailure } from './failures.ts'

/** The batch as kafkajs takes it, and how many bytes of keys, values and headers are in it. */
export interface CheckedBatch {
  readonly messages: readonly Message[]
  readonly bytes: number
}

/**
 * Checks `records` for `partition`, and gives all the time `timestampMs`, so
 * that a repeat is the same. Throws {@link DriverFailure} of kind `record` for
 * what is neither text nor bytes.
 */
export function checkRecords(records: readonly OutgoingRecord[], partition: number, timestampMs: number): CheckedBatch {
  const timestamp = String(timestampMs)
  let bytes = 0
  const messages = records.map(({ key, value, headers }) => {
    bytes += bytesOfText(key, 'key') + bytesOfValue(value)
    for (const name in headers) bytes += bytesOfText(name, 'header') + bytesOfText(headers[name], 'header')
    return { key, value, headers, partition, timestamp }
  })
  return { messages, bytes }
}

function bytesOfValue(value: unknown): number {
  if (value === null) return 0
  return Buffer.isBuffer(value) ? value.length : bytesOfText(value, 'value')
}

/** A lone surrogate would become a replacement character: another key than the one that was given. */
function bytesOfText(text: unknown, part: 'key' | 'value' | 'header'): number {
  if (typeof text === 'string' && text.isWellFormed()) return Buffer.byteLength(text)
  const what = typeof text === 'string' ? 'not well-formed text' : `of type ${typeof text}`
  throw new DriverFailure('record', 'INVALID_RECORD', `A record's ${part} is ${what}`)
}
