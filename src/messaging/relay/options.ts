/** How a relay behaves. Resolved and validated once, at start. */
import { InvalidOptionError } from '../errors.ts'
import { requireKnown, requireWhole, withDefaults } from '../options.ts'

/** Every option has a default; see each for what it trades. */
export interface RelaySettings {
  /**
   * Events read at once by one thread, and at most sent in one record batch.
   * More raises throughput, and also the number published twice when a thread
   * dies before it has marked them.
   * @defaultValue 2_000
   */
  batchSize?: number
  /**
   * Bytes of payload that one thread has in hand at most; bounds its memory.
   * @defaultValue 8_388_608
   */
  maxInHandBytes?: number
  /**
   * Bytes of one record batch. Must stay below the topic's `max.message.bytes`.
   * @defaultValue 900_000
   */
  maxBatchBytes?: number
  /**
   * Milliseconds between two looks at the database for what no wake-up has
   * announced, and between two renewals of the leases.
   * @defaultValue 1_000
   */
  pollIntervalMs?: number
  /**
   * Milliseconds a lane stays with a thread that has fallen silent. Less takes
   * over sooner, and sooner from one that is only slow.
   * @defaultValue 5_000
   */
  leaseMs?: number
  /**
   * Attempts on an event that the broker refuses, before its key is parked.
   * @defaultValue 10
   */
  maxAttempts?: number
  /**
   * Milliseconds that a stopping relay gives to what is in hand. What is left
   * then is published again at the next start.
   * @defaultValue 10_000
   */
  graceMs?: number
}

export const relayDefaults = {
  batchSize: 2_000,
  maxInHandBytes: 8_388_608,
  maxBatchBytes: 900_000,
  pollIntervalMs: 1_000,
  leaseMs: 5_000,
  maxAttempts: 10,
  graceMs: 10_000,
} as const satisfies Required<RelaySettings>

/** A worker whose life ends further ahead is taken for one from before the database's clock was set back. */
const MAX_LEASE_MS = 3_600_000

/** The settings with their defaults filled in. */
export type ResolvedRelaySettings = Required<RelaySettings>

/**
 * Fills in the defaults.
 * @throws InvalidOptionError naming the first option that cannot be used
 */
export function resolveRelaySettings(settings: RelaySettings): ResolvedRelaySettings {
  requireKnown(settings, relayDefaults)
  const resolved = withDefaults<RelaySettings, keyof RelaySettings>(settings, relayDefaults)
  for (const [option, value] of Object.entries(resolved)) {
    requireWhole(option, value)
  }
  if (resolved.leaseMs > MAX_LEASE_MS) {
    throw new InvalidOptionError('leaseMs', resolved.leaseMs, `at most ${MAX_LEASE_MS}`)
  }
  if (resolved.leaseMs < 2 * resolved.pollIntervalMs) {
    throw new InvalidOptionError(
      'leaseMs',
      resolved.leaseMs,
      'at least twice pollIntervalMs, or a lease ends between two renewals',
    )
  }
  return resolved
}
