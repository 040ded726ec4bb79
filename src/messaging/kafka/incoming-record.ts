/** A record as kafkajs read it, in our terms. */
import type { IHeaders, KafkaMessage } from 'kafkajs'
import type { IncomingRecord } from '../transport.ts'

/** The years that dates are written with in four digits, as databases and others read them. */
const EARLIEST = Date.parse('0001-01-01T00:00:00.000Z')
const LATEST = Date.parse('9999-12-31T23:59:59.999Z')

/** Headers become text; of a name that occurs twice the last counts, as in Kafka's own client; one without value is left out. */
export function toIncomingRecord({ offset, timestamp, key, value, headers }: KafkaMessage): IncomingRecord {
  return {
    offset: BigInt(offset),
    timestamp: usableTime(Number(timestamp)),
    key,
    value,
    headers: Object.fromEntries(
      Object.entries(headers ?? {}).flatMap(([name, value]) => {
        const text = headerText(value)
        return text === null ? [] : [[name, text] as const]
      }),
    ),
  }
}

/** Producers of others write what they like, and old brokers take it: nearest that is a date. */
function usableTime(ms: number): Date {
  return new Date(Math.min(Math.max(ms, EARLIEST), LATEST))
}

/** A header's text; `null` for one without value. */
export function headerText(value: IHeaders[string]): string | null {
  const last = Array.isArray(value) ? value.at(-1) : value
  return last?.toString() ?? null
}
