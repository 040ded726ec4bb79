/** What the database and its clients say of each other: I1, I2, I10, I11, I12. */
import type { CommittedEvent, HistoryEntry } from './evidence.ts'
import type { Findings } from './findings.ts'
import { aggregateName, type Indexed } from './index-evidence.ts'

/** I1: an aggregate's state carries the version of its last committed event. */
export function checkAtomicity({ evidence, committedByAggregate }: Indexed, findings: Findings): void {
  const states = new Map(evidence.states.map((state) => [aggregateName(state), state]))
  if (states.size === 0) return
  const types = new Set(evidence.states.map(({ aggregateType }) => aggregateType))

  for (const [name, events] of committedByAggregate) {
    const last = events.at(-1)
    if (!last || !types.has(last.aggregateType) || last.version === null) continue
    const state = states.get(name)
    const about = { ids: [last.id], aggregateId: last.aggregateId }
    if (!state) findings.add('I1', `${name} has committed events and no state`, about)
    else if (state.version !== last.version) {
      findings.add('I1', `${name} is at version ${state.version}, its events at ${last.version}`, about)
    }
  }
  for (const [name, state] of states) {
    if (committedByAggregate.has(name)) continue
    findings.add('I1', `${name} has state and no committed event`, { aggregateId: state.aggregateId })
  }
}

/** I2: what was answered `ok` is committed, what was answered `fail` is not, and nobody commits what none asked for. */
export function checkAnswers({ evidence, committedById, operations }: Indexed, findings: Findings): void {
  const byOperation = new Map<string, CommittedEvent>()
  for (const event of evidence.committed) {
    if (event.operation === null) continue
    byOperation.set(event.operation, event)
    if (evidence.history.length > 0 && !operations.has(event.operation)) {
      findings.add('I2', `event ${event.id} belongs to operation ${event.operation}, which nobody invoked`, {
        ids: [event.id],
        aggregateId: event.aggregateId,
      })
    }
  }
  for (const entry of evidence.history) {
    if (isFault(entry)) continue
    if (entry.kind === 'ok') {
      for (const id of entry.eventIds ?? []) {
        if (committedById.has(id)) continue
        findings.add('I2', `${entry.name} was answered ok with event ${id}, which is not committed`, {
          ids: [id],
          aggregateId: entry.aggregateId ?? null,
        })
      }
    }
    const event = entry.kind === 'fail' ? byOperation.get(entry.operation) : undefined
    if (event) {
      findings.add('I2', `${entry.name} was answered fail, and its event ${event.id} is committed`, {
        ids: [event.id],
        aggregateId: event.aggregateId,
      })
    }
  }
}

/** I10: every settled row was settled under the lease of that moment. */
export function checkFencing({ evidence }: Indexed, findings: Findings): void {
  for (const { id, lane, owner, token, leaseOwner, leaseToken } of evidence.marks) {
    if (owner === leaseOwner && token === leaseToken) continue
    const problem = `event ${id} was settled by ${owner} with token ${token}; lane ${lane} was ${leaseOwner ?? 'nobody'}'s with ${leaseToken}`
    findings.add('I10', problem, { ids: [id] })
  }
}

/** I11: at the end nothing is pending, every lane belongs to a live worker, and every part came back in time. */
export function checkLiveness({ evidence: { final, recoveries } }: Indexed, findings: Findings): void {
  for (const { name, tookMs, withinMs } of recoveries) {
    if (tookMs === null) findings.add('I11', `${name} never recovered`)
    else if (tookMs > withinMs) findings.add('I11', `${name} took ${tookMs} ms to recover; ${withinMs} are allowed`)
  }
  if (!final) return
  if (final.pending > 0) findings.add('I11', `${final.pending} events are still pending`)
  if (!final.liveOwners) return
  const live = new Set(final.liveOwners)
  for (const { lane, owner } of final.lanes) {
    if (owner === null || !live.has(owner))
      findings.add('I11', `lane ${lane} belongs to ${owner ?? 'nobody'}, which is not alive`)
  }
}

/** I12: all answers to one idempotency key name the same events. */
export function checkIdempotency({ evidence }: Indexed, findings: Findings): void {
  const answers = new Map<string, string>()
  for (const entry of evidence.history) {
    if (entry.kind !== 'ok' || entry.idempotencyKey === undefined || !entry.eventIds) continue
    const answer = entry.eventIds.join(' ')
    const first = answers.get(entry.idempotencyKey)
    if (first === undefined) answers.set(entry.idempotencyKey, answer)
    else if (first !== answer) {
      findings.add('I12', `idempotency key ${entry.idempotencyKey} was answered with different events`, {
        ids: [...first.split(' '), ...entry.eventIds],
        aggregateId: entry.aggregateId ?? null,
      })
    }
  }
}

/** Whether an entry is a fault, and not load. */
export function isFault({ actor }: HistoryEntry): boolean {
  return actor === 'nemesis'
}
