/** What a relay says of itself: to readiness, and as gauges. */
import { MIGRATE } from '../errors.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Status } from '../lifecycle/status.ts'
import type { PausedDestination } from '../source.ts'
import { ATTR_DESTINATION, ATTR_MODE, ATTR_OUTBOX, ATTR_THREAD, outboxName } from '../telemetry/attributes.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import { type Crew, type CrewMember, goesRound } from './crew.ts'
import type { HeldKeySummary } from './protocol.ts'

/** Milliseconds without a successful renewal after which the relay is not ready. */
const RENEWAL_MS = 5_000
/** Milliseconds for which events may be pending with none published before that counts as stuck. */
const STUCK_MS = 15_000

/** How a relay stands. */
export interface RelayStatus extends Status {
  /** Lanes that this process owns. */
  readonly lanesOwned: number
  /** Events published and marked by the workers alive. */
  readonly publishedCount: number
  /** Destinations that rest after a failure. */
  readonly paused: readonly PausedDestination[]
  /** Keys held or parked, a bounded number of them. */
  readonly heldKeys: readonly HeldKeySummary[]
}

/** Follows whether renewals work and events flow. */
export class Progress {
  readonly #clock: Clock
  #renewedAt: number | null = null
  #problem: string | null = null
  #movedAt: number
  #published = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#movedAt = clock.now()
  }

  /** Notes a renewal. */
  renewed(members: readonly CrewMember[]): void {
    this.#renewedAt = this.#clock.now()
    this.#problem = null
    const published = sumOf(members, 'publishedCount')
    if (published !== this.#published || sumOf(members, 'inHandCount') === 0) this.#movedAt = this.#clock.now()
    this.#published = published
  }

  /** Notes that the database could not be asked. */
  failed(error: unknown): void {
    this.#problem = `The leases cannot be renewed: ${describeFailure(error)}`
  }

  /** What keeps the leases from being renewed; `null` while they are. */
  get problem(): string | null {
    return this.#problem
  }

  problems(): readonly string[] {
    const now = this.#clock.now()
    if (this.#renewedAt === null) return [this.#problem ?? 'The relay has no leases yet']
    if (this.#problem !== null && now - this.#renewedAt > 1_000) return [this.#problem]
    if (now - this.#renewedAt > RENEWAL_MS) return ['The leases have not been renewed for more than five seconds']
    if (now - this.#movedAt > STUCK_MS) {
      return [`Events are in hand, and none was published for ${Math.round((now - this.#movedAt) / 1000)} s`]
    }
    return []
  }
}

/** What a failed renewal says about the database, for whoever has to mend it. */
function describeFailure(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'no answer'
  if (code === '42P01') return `its tables are missing (${code}); ${MIGRATE}`
  if (code.startsWith('28')) return `the database refuses the login (${code})`
  if (code === '3D000') return `there is no such database (${code})`
  if (code === '42501') return `the database does not allow it (${code})`
  return `the database does not answer (${code})`
}

/** Draws up the status. */
export function toStatus({ crew, progress }: { crew?: Crew; progress: Progress }): RelayStatus {
  const members = crew?.members ?? []
  const reports = members.flatMap(({ report }) => report ?? [])
  const paused = distinct(reports.flatMap((report) => report.paused))
  const heldKeys = reports.flatMap((report) => report.heldKeys)
  const faults = [
    ...progress.problems(),
    ...(crew?.problems() ?? []),
    ...new Set(
      reports
        .flatMap(({ brokerProblem, databaseProblem }) => [brokerProblem, databaseProblem])
        .filter((problem) => problem !== null),
    ),
    ...paused.map(describePause),
  ]
  const notes = [...heldKeys.map(describeKey), ...new Set(reports.flatMap(({ warnings }) => warnings))]
  return {
    ready: faults.length === 0,
    problems: [...faults, ...notes],
    lanesOwned: members.reduce((sum, { grants }) => sum + grants.size, 0),
    publishedCount: sumOf(members, 'publishedCount'),
    paused,
    heldKeys,
  }
}

/** Sets the gauges that only the owner of the workers knows. */
export function measureRelay(members: readonly CrewMember[], listening: boolean): void {
  const instruments = getInstruments()
  const outbox = { [ATTR_OUTBOX]: outboxName() }
  instruments.lanesOwned.record(
    members.reduce((sum, { grants }) => sum + grants.size, 0),
    outbox,
  )
  for (const member of members) {
    if (!goesRound(member)) continue
    instruments.lastPoll.record(Date.now() / 1000, { ...outbox, [ATTR_THREAD]: `relay-${member.index}` })
  }
  instruments.wakeMode.record(Number(listening), { ...outbox, [ATTR_MODE]: 'notify' })
  instruments.wakeMode.record(Number(!listening), { ...outbox, [ATTR_MODE]: 'poll' })
  const resting = new Set(members.flatMap(({ report }) => report?.paused.map(({ topic }) => topic) ?? []))
  for (const topic of resting) everPaused.add(topic)
  for (const topic of everPaused) {
    instruments.topicPaused.record(Number(resting.has(topic)), { ...outbox, [ATTR_DESTINATION]: topic })
  }
}

/** Topics that have rested once: their gauge goes back to 0, or it would stay at 1 for ever. */
const everPaused = new Set<string>()

function describePause({ topic, partition, kind, reason }: PausedDestination): string {
  const where = partition === null ? `Topic ${topic}` : `Partition ${partition} of topic ${topic}`
  return `${where} is paused: ${reason} (${kind})`
}

function describeKey({ topic, aggregateType, aggregateId, state, attempts, reason }: HeldKeySummary): string {
  const waits = state === 'parked' ? 'is parked and waits for an operator' : 'is held and is tried again'
  return `Key ${aggregateType} ${aggregateId} of topic ${topic} ${waits} after ${attempts} attempts: ${reason}`
}

function distinct(paused: readonly PausedDestination[]): readonly PausedDestination[] {
  return [...new Map(paused.map((pause) => [`${pause.topic}/${pause.partition}`, pause])).values()]
}

function sumOf(members: readonly CrewMember[], count: 'publishedCount' | 'inHandCount'): number {
  return members.reduce((sum, { report }) => sum + (report?.[count] ?? 0), 0)
}
