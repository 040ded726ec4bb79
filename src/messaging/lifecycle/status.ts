/** What a running part says of itself, for readiness. */
export interface Status {
  /** Whether it does its work, or could if there were any. */
  readonly ready: boolean
  /** What is wrong, one sentence each, fit for an operator: names topics, keys and brokers, never payloads or secrets. May list things that do not make it unready. */
  readonly problems: readonly string[]
}
