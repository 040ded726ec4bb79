/**
 * The lanes of one relay process: renewed, balanced and handed to its workers,
 * for all of them in one statement a second.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { termOf } from '../lifecycle/term.ts'
import type { DirectoryView, LaneDirectory, LaneGrant } from '../source.ts'
import { balance } from './balance.ts'
import type { Crew, CrewMember } from './crew.ts'

/** Stands for the horizon of a takeover whose answer was lost: nothing is known to be newer. */
const UNKNOWN_HORIZON = 2n ** 63n - 1n

/** Lanes that a line of the log names; of more it has the number. */
const NAMED = 8

export interface LeasesOptions {
  readonly directory: LaneDirectory
  readonly crew: Crew
  readonly leaseMs: number
  readonly clock: Clock
  readonly logger: Logger
}

export class Leases {
  readonly #options: LeasesOptions
  /** Whether other relay processes were alive at the last renewal. */
  hasPeers = false
  #ticks = 0

  constructor(options: LeasesOptions) {
    this.#options = options
  }

  /**
   * Renews, tells of topics whose partition count changes, hands out, balances,
   * and wakes the workers whose lanes have pending events. Looks for those at each second tick while wake-ups arrive by
   * themselves, at every tick otherwise: an idle relay process asks the
   * database less than twice a second. Rejects when it does not answer.
   */
  async tick({ wakesArrive }: { wakesArrive: boolean }): Promise<void> {
    const { crew } = this.#options
    crew.tick()
    const working = crew.working
    if (working.length === 0) return
    const view = await this.#renew(working, (found) => {
      for (const member of working) {
        // Before any lane is handed out: a worker that was frozen knows counts of before.
        this.#tellTopics(member, found)
        this.#reconcile(member, found)
      }
    })
    this.hasPeers = view.liveOwners.length > working.length
    await this.#balance(working, view)
    this.#ticks += 1
    if (!wakesArrive || this.#ticks % 2 === 1) await this.#wakePending(working)
    for (const member of working) {
      const lanes = view.requestedLanes.filter((lane) => member.grants.has(lane))
      if (lanes.length > 0) member.handle.line.post({ kind: 'requests', lanes })
    }
  }

  /** Renews, and tells what was lost: while the workers drain, nothing is handed out. */
  async renewOnly(): Promise<void> {
    const { working } = this.#options.crew
    if (working.length === 0) return
    await this.#renew(working, ({ lanes }) => {
      for (const member of working) this.#tellLost(member, lanes)
    })
  }

  /** Renews, and tells the workers for how long; `learn` comes first, so that none goes on with a lane that it has lost. */
  async #renew(working: readonly CrewMember[], learn: (view: DirectoryView) => void): Promise<DirectoryView> {
    const { directory, leaseMs, clock } = this.#options
    const term = termOf(clock, leaseMs)
    const view = await directory.renew(
      working.map(({ owner }) => owner),
      leaseMs,
      working.flatMap(({ owner, restsFor }) => restsFor.map((adoption) => ({ owner, adoption }))),
    )
    learn(view)
    for (const { handle } of working) handle.line.post({ kind: 'renewed', term })
    return view
  }

  /** Wakes the workers that own `lanes`. */
  wake(lanes: readonly number[]): void {
    for (const member of this.#options.crew.members) {
      const ours = lanes.filter((lane) => member.grants.has(lane))
      if (ours.length > 0) member.handle.line.post({ kind: 'wake', lanes: ours })
    }
  }

  /** Holds what a worker is thought to own against what the database says. */
  #reconcile(member: CrewMember, { lanes }: DirectoryView): void {
    const actual = lanes.filter(({ owner }) => owner === member.owner)
    const isSame =
      actual.length === member.grants.size &&
      actual.every(({ lane, token }) => member.grants.get(lane)?.token === token)
    if (isSame) return
    const grants = actual.map(({ lane, token, crashes, doubt }): LaneGrant => {
      const known = member.grants.get(lane)
      return known?.token === token ? known : { lane, token, crashes, horizon: UNKNOWN_HORIZON, doubt }
    })
    member.grants.clear()
    for (const grant of grants) member.grants.set(grant.lane, grant)
    this.#handOut(member)
  }

  /** A worker that was frozen as it drained would send under a lease that is another's by now. */
  #tellLost(member: CrewMember, lanes: DirectoryView['lanes']): void {
    const owned = new Map(lanes.flatMap(({ lane, owner, token }) => (owner === member.owner ? [[lane, token]] : [])))
    const lost = [...member.grants].filter(([lane, { token }]) => owned.get(lane) !== token)
    if (lost.length === 0) return
    for (const [lane] of lost) member.grants.delete(lane)
    this.#handOut(member)
  }

  #tellTopics(member: CrewMember, { adoptedTopics }: DirectoryView): void {
    if (isDeepStrictEqual(member.toldTopics, adoptedTopics)) return
    member.toldTopics = adoptedTopics
    member.handle.line.post({ kind: 'topics', topics: adoptedTopics })
  }

  async #balance(working: readonly CrewMember[], view: DirectoryView): Promise<void> {
    const { directory, logger } = this.#options
    // Nothing moves during an outage: what is in hand could not be settled first.
    const isOutage = working.some(
      ({ report }) => report?.brokerProblem !== null || report.paused.some(({ kind }) => kind === 'outage'),
    )
    const plans = balance(
      view.lanes,
      view.liveOwners,
      working.map(({ owner }) => owner),
    )
    for (const plan of plans) {
      const member = working.find(({ owner }) => owner === plan.owner)
      if (member === undefined) continue
      if (plan.claim.length > 0) {
        const grants = await directory.claim(member.owner, plan.claim)
        for (const grant of grants) member.grants.set(grant.lane, grant)
        if (grants.length > 0) this.#handOut(member)
        // A count that this claim has raised: it outlives lanes that are handed back with events pending.
        const known = new Map(view.lanes.map(({ lane, crashes }) => [lane, crashes]))
        const crashed = grants.filter(({ lane, crashes }) => crashes > (known.get(lane) ?? 0)).map(({ lane }) => lane)
        if (crashed.length > 0)
          logger.warn({ worker: member.index, ...named(crashed) }, 'Lanes taken over from a worker that vanished')
      }
      if (plan.yield.length > 0 && !isOutage) member.handle.line.post({ kind: 'yield', lanes: plan.yield })
    }
  }

  async #wakePending(working: readonly CrewMember[]): Promise<void> {
    const lanes = working.flatMap(({ grants }) => [...grants.keys()])
    if (lanes.length > 0) this.wake(await this.#options.directory.pendingLanes(lanes))
  }

  #handOut({ handle, owner, grants }: CrewMember): void {
    handle.line.post({ kind: 'lanes', owner, grants: [...grants.values()] })
  }
}

function named(lanes: readonly number[]): { readonly laneCount: number; readonly lanes?: readonly number[] } {
  return { laneCount: lanes.length, ...(lanes.length <= NAMED && { lanes }) }
}
