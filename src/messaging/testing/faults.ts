/**
 * What can be made to go wrong in the in-memory broker: rules that are asked
 * for every request that reaches it. The first that has something to say
 * decides. Deterministic: a rule that wants chance brings its own seed.
 */
import type { PublishFailureKind } from '../errors.ts'
import type { OutgoingRecord, RecordBatch } from '../transport.ts'

/** What happens to one request. */
export type Fault =
  /** The broker stores the batch, and the publisher never learns of it: outcome unknown. */
  | { readonly kind: 'answer lost' }
  /** The request never arrives, and the publisher cannot tell: outcome unknown. */
  | { readonly kind: 'request lost' }
  /** The broker refuses, and says so. */
  | { readonly kind: 'refused'; readonly failure: PublishFailureKind; readonly reason: string }
  /** The request takes `ms` milliseconds of the broker's clock, and is then carried out. */
  | { readonly kind: 'delayed'; readonly ms: number }
  /** The request waits for `until`, and is then carried out. */
  | { readonly kind: 'held'; readonly until: Promise<void> }

/** Decides about one request of a publisher; `null` has nothing to say. `attempt` counts from 1 for each batch. */
export type FaultRule = (batch: RecordBatch, attempt: number) => Fault | null

/** Which requests a fault is for; what is left out matches all. */
export interface FaultScope {
  readonly topic?: string
  readonly partition?: number
}

/** Requests that wait for a test, and not for time. */
export interface Hold {
  /** Resolves once the first request waits. */
  readonly met: Promise<void>
  /** Ends the rule, and lets every request go that waits. */
  release(): void
}

/** The rules in force. Each method returns what ends its rule. */
export class Faults {
  readonly #rules = new Set<FaultRule>()
  readonly #holds = new Set<() => void>()
  #fullOutages = 0

  /** True while an outage without scope lasts: no broker answers anything. */
  get everythingIsAway(): boolean {
    return this.#fullOutages > 0
  }

  /** What happens to this request; `null` if nothing is wrong. */
  decide(batch: RecordBatch, attempt: number): Fault | null {
    for (const rule of this.#rules) {
      const fault = rule(batch, attempt)
      if (fault) return fault
    }
    return null
  }

  /** Adds a rule. */
  add(rule: FaultRule): () => void {
    this.#rules.add(rule)
    return () => {
      this.#rules.delete(rule)
    }
  }

  /** Ends every rule, and lets every request go that is held. */
  clear(): void {
    this.#rules.clear()
    this.#fullOutages = 0
    for (const release of this.#holds) release()
  }

  /** The next `count` requests are stored and their answers lost. */
  loseAnswers(count: number, scope: FaultScope = {}): () => void {
    return this.#times(count, scope, { kind: 'answer lost' })
  }

  /** The next `count` requests are lost. */
  loseRequests(count: number, scope: FaultScope = {}): () => void {
    return this.#times(count, scope, { kind: 'request lost' })
  }

  /** A broker, topic or partition is away until the rule is ended. */
  outage(scope: FaultScope = {}, reason = 'LEADER_NOT_AVAILABLE'): () => void {
    const end = this.#times(Number.POSITIVE_INFINITY, scope, { kind: 'refused', failure: 'outage', reason })
    if (scope.topic !== undefined || scope.partition !== undefined) return end
    this.#fullOutages += 1
    let over = false
    return () => {
      end()
      if (!over) this.#fullOutages -= 1
      over = true
    }
  }

  /** Writing to `topic` is forbidden until the rule is ended. */
  forbid(topic: string): () => void {
    const fault: Fault = { kind: 'refused', failure: 'destination', reason: 'TOPIC_AUTHORIZATION_FAILED' }
    return this.#times(Number.POSITIVE_INFINITY, { topic }, fault)
  }

  /** A batch with such a record is refused as a whole until the rule is ended. */
  refuseRecords(matches: (record: OutgoingRecord) => boolean, reason = 'INVALID_RECORD'): () => void {
    return this.add(({ records }) => (records.some(matches) ? { kind: 'refused', failure: 'record', reason } : null))
  }

  /** Every request takes `ms` milliseconds until the rule is ended. */
  delay(ms: number, scope: FaultScope = {}): () => void {
    return this.#times(Number.POSITIVE_INFINITY, scope, { kind: 'delayed', ms })
  }

  /** Every request waits until the hold is released: the broker is silent for as long as a test wants. */
  hold(scope: FaultScope = {}): Hold {
    const { promise: until, resolve: letGo } = Promise.withResolvers<void>()
    const { promise: met, resolve: meet } = Promise.withResolvers<void>()
    const fault: Fault = { kind: 'held', until }
    const end = this.add((batch) => {
      if (!isWithin(batch, scope)) return null
      meet()
      return fault
    })
    const release = () => {
      end()
      letGo()
      this.#holds.delete(release)
    }
    this.#holds.add(release)
    return { met, release }
  }

  #times(count: number, scope: FaultScope, fault: Fault): () => void {
    let left = count
    const end = this.add((batch) => {
      if (!isWithin(batch, scope)) return null
      left -= 1
      if (left <= 0) end()
      return fault
    })
    return end
  }
}

function isWithin(batch: RecordBatch, { topic, partition }: FaultScope): boolean {
  return (topic === undefined || batch.topic === topic) && (partition === undefined || batch.partition === partition)
}
