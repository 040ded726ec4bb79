/** A record as kafkajs read it, in our terms. */
import type { IHeaders, KafkaMessage } from 'kafkajs'
import type { IncomingRecord } from '../transport.ts'

/** Headers become text; of a name that occurs twice the last counts, as in Kafka's own client; one without value is left out. */
export function toIncomingRecord({ offset, timestamp, key, value, headers }: KafkaMessage): IncomingRecord {
  return {
    offset: BigInt(offset),
    timestamp: new Date(Number(timestamp)),
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

/** A header's text; `null` for one without value. */
export function headerText(value: IHeaders[string]): string | null {
  const last = Array.isArray(value) ? value.at(-1) : value
  return last?.toString() ?? null
}
