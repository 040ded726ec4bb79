/** How pauses grow. */
export interface Backoff {
  /** Milliseconds before the second attempt. */
  readonly firstMs: number
  /** Milliseconds that no pause exceeds. */
  readonly maxMs: number
}

/**
 * Milliseconds to wait after attempt `attempt` (from 1) has failed: doubling
 * from `firstMs` to `maxMs`, of which `random` (0 to 1) takes away up to half,
 * so that many who failed together do not return together.
 */
export function backoffMs({ firstMs, maxMs }: Backoff, attempt: number, random: number): number {
  const full = Math.min(maxMs, firstMs * 2 ** Math.min(attempt - 1, 30))
  return Math.round(full * (1 - random / 2))
}
