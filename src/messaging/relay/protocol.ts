/** What the relay and its workers say to each other. Plain data: it is cloned on the way between threads. */
import type { Term } from '../lifecycle/term.ts'
import type { AdoptedTopic, LaneGrant, PausedDestination } from '../source.ts'

export type ToWorker =
  /** All lanes that the worker owns from now on; what is missing is lost. */
  | { readonly kind: 'lanes'; readonly owner: string; readonly grants: readonly LaneGrant[] }
  /** The worker's leases stand until then. What of its lanes is lost was said before. */
  | { readonly kind: 'renewed'; readonly term: Term }
  /** Finish what is in hand of these lanes, then give them back. */
  | { readonly kind: 'yield'; readonly lanes: readonly number[] }
  /** These lanes have something new. */
  | { readonly kind: 'wake'; readonly lanes: readonly number[] }
  /** An operator has asked something of a held key in these lanes. */
  | { readonly kind: 'requests'; readonly lanes: readonly number[] }
  /** The topics whose partition count was ever changed, as they stand now. */
  | { readonly kind: 'topics'; readonly topics: readonly AdoptedTopic[] }
  /** Finish what is in hand, give every lane back and end. */
  | { readonly kind: 'drain' }
  /** The grace period is over: give up what is in hand. */
  | { readonly kind: 'cancel' }

export type FromWorker =
  | { readonly kind: 'ready' }
  /** Sent at every poll interval, also while idle or waiting for a broker. */
  | { readonly kind: 'heartbeat'; readonly report: WorkerReport }
  /** These lanes were given back, or found lost. */
  | { readonly kind: 'gone'; readonly lanes: readonly number[] }
  /** Nothing is on its way to the topics of these adoptions, nor will be before they end. */
  | { readonly kind: 'at rest'; readonly adoptions: readonly string[] }
  | { readonly kind: 'drained' }

/** What a worker says of itself. */
export interface WorkerReport {
  readonly inHandCount: number
  readonly publishedCount: number
  readonly paused: readonly PausedDestination[]
  readonly heldKeys: readonly HeldKeySummary[]
  /** More held keys exist than `heldKeys` lists. */
  readonly heldKeyCount: number
  /** What the database said when it could not be asked; `null` when it can. */
  readonly databaseProblem: string | null
  /** Why the broker cannot be reached; `null` when it can. */
  readonly brokerProblem: string | null
  /** Things an operator should know that stop nothing. */
  readonly warnings: readonly string[]
}

/** A held key, as readiness names it. */
export interface HeldKeySummary {
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly state: 'backoff' | 'parked'
  readonly attempts: number
  readonly reason: string
}

/** One end of the line between a relay and one of its workers. */
export interface Line<Out, In> {
  post(message: Out): void
  /** Calls `listener` for each message from the other side. Resolves nothing, throws nothing. */
  listen(listener: (message: In) => void): void
  close(): void
}
