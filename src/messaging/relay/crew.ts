/**
 * A relay's workers: started, listened to, and started again when they die.
 *
 * Each start gives a worker a new uuid, so that whatever an earlier one still
 * has under way is fenced.
 */
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import type { AdoptedTopic, LaneGrant } from '../source.ts'
import { ATTR_OUTBOX, outboxName } from '../telemetry/attributes.ts'
import { getInstruments } from '../telemetry/metrics.ts'
import type { FromWorker, WorkerReport } from './protocol.ts'
import type { WorkerHandle } from './spawn.ts'

const restartBackoff: Backoff = { firstMs: 500, maxMs: 30_000 }

/** A worker that lived this long starts its back-off anew when it dies. */
const LONG_LIFE_MS = 60_000

/** Renewals without a sign of life after which a worker's leases are left to expire. */
const SILENT_TICKS = 3

/** Renewals without a sign of life after which a worker is ended and replaced. */
const WEDGED_TICKS = 30

/** The same for one that is still starting: loading its code takes long on a busy machine. */
const STARTING_TICKS = 180

/** Signs of life after which the successor of a dead worker counts as going round. */
const SETTLED_BEATS = 10

/** One worker, alive. */
export interface CrewMember {
  readonly index: number
  readonly owner: string
  readonly handle: WorkerHandle
  phase: 'starting' | 'ready' | 'drained'
  /** What it owns, by lane. */
  readonly grants: Map<number, LaneGrant>
  /** What it last said of itself. */
  report: WorkerReport | null
  /** Renewals since it was last heard. */
  silentTicks: number
  /** Signs of life that are still wanted before it counts as going round. */
  beatsWanted: number
  /** What it was last told of topics whose partition count changes. */
  toldTopics: readonly AdoptedTopic[]
  /** The adoptions for which it says that it is at rest. */
  restsFor: readonly string[]
}

/**
 * Whether a worker goes round its loop. The successor of a dead one has to do
 * so for a while: what stands still as soon as it is up, again and again, would
 * look alive at each start.
 */
export function goesRound({ beatsWanted, silentTicks }: CrewMember): boolean {
  return beatsWanted === 0 && silentTicks <= 1
}

export interface CrewOptions {
  readonly count: number
  readonly spawn: (index: number) => WorkerHandle
  /** A uuid for each start of a worker. */
  readonly createOwner: () => string
  /** Milliseconds between two renewals, and between two signs of life. */
  readonly pollIntervalMs: number
  readonly clock: Clock
  readonly logger: Logger
  /** Aborts when dead workers are to stay dead. */
  readonly draining: AbortSignal
  /** A worker has become ready, died, or given lanes back. */
  readonly onChange: () => void
  /** A worker has ended, and what it owned is free. */
  readonly onEnded: (owner: string) => Promise<void>
}

export class Crew {
  readonly #options: CrewOptions
  readonly #members = new Map<number, CrewMember>()
  readonly #lives: Promise<void>[]
  #tickedAt = Number.NEGATIVE_INFINITY
  /** Why the last worker died; `null` when none did lately. */
  readonly #deaths = new Map<number, string>()

  constructor(options: CrewOptions) {
    this.#options = options
    this.#lives = Array.from({ length: options.count }, (_, index) => this.#live(index))
  }

  /** The workers that are alive. */
  get members(): readonly CrewMember[] {
    return [...this.#members.values()]
  }

  /** Those whose leases are to be renewed. */
  get working(): readonly CrewMember[] {
    return this.members.filter(({ phase, silentTicks }) => phase === 'ready' && silentTicks < SILENT_TICKS)
  }

  /**
   * Counts a renewal; ends workers that have been silent for too many. Counted
   * and not timed: a process that was frozen finds its workers as they were.
   */
  tick(): void {
    const now = this.#options.clock.now()
    // A tick that follows an event at once leaves no time for a sign of life.
    if (now - this.#tickedAt < this.#options.pollIntervalMs / 2) return
    this.#tickedAt = now
    for (const member of this.#members.values()) {
      member.silentTicks += 1
      if (member.silentTicks !== (member.phase === 'starting' ? STARTING_TICKS : WEDGED_TICKS)) continue
      this.#options.logger.error({ worker: member.index }, 'A relay worker is wedged; it is replaced')
      void terminate(member)
    }
  }

  /** What is wrong with the workers themselves, a sentence each. */
  problems(): readonly string[] {
    return Array.from({ length: this.#options.count }, (_, index) => {
      const member = this.#members.get(index)
      if (member === undefined)
        return `Relay worker ${index} is down and will be restarted (${this.#deaths.get(index) ?? 'starting'})`
      if (member.phase === 'starting') return `Relay worker ${index} is starting`
      if (member.silentTicks >= SILENT_TICKS) return `Relay worker ${index} does not answer`
      return null
    }).filter((problem) => problem !== null)
  }

  /** Drains every worker; past `cancelled` what is in hand is given up. Resolves once all have ended. */
  async drain(cancelled: AbortSignal): Promise<void> {
    const giveUp = () => {
      for (const { handle } of this.#members.values()) handle.line.post({ kind: 'cancel' })
    }
    for (const { handle } of this.#members.values()) handle.line.post({ kind: 'drain' })
    if (cancelled.aborted) giveUp()
    cancelled.addEventListener('abort', giveUp, { once: true })
    await Promise.all(this.#lives)
    cancelled.removeEventListener('abort', giveUp)
  }

  /** Ends what is still alive, whatever it does. */
  async terminate(): Promise<void> {
    await Promise.all(this.members.map(terminate))
  }

  /** One place in the crew, for as long as the relay runs: one worker after another. */
  async #live(index: number): Promise<void> {
    const { clock, draining, logger, onChange } = this.#options
    for (let deaths = 1; !draining.aborted; deaths += 1) {
      const started = clock.now()
      const error = await this.#liveOnce(index, deaths === 1 ? 1 : SETTLED_BEATS)
      onChange()
      if (draining.aborted) return
      this.#deaths.set(index, causeOf(error))
      logger.error({ worker: index, err: error }, 'A relay worker died; it is restarted')
      getInstruments().threadRestarts.add(1, { [ATTR_OUTBOX]: outboxName() })
      if (clock.now() - started > LONG_LIFE_MS) deaths = 1
      await clock.pause(backoffMs(restartBackoff, deaths, clock.random()), draining)
    }
  }

  /** Resolves to what the worker has died of. One that cannot even be started has died of that. */
  async #liveOnce(index: number, beatsWanted: number): Promise<Error | null> {
    let member: CrewMember
    try {
      member = this.#start(index, beatsWanted)
    } catch (error) {
      return error instanceof Error ? error : new Error('The worker could not be started')
    }
    const error = await member.handle.ended
    this.#members.delete(index)
    await this.#options.onEnded(member.owner)
    return error
  }

  #start(index: number, beatsWanted: number): CrewMember {
    const member: CrewMember = {
      index,
      owner: this.#options.createOwner(),
      handle: this.#options.spawn(index),
      phase: 'starting',
      grants: new Map(),
      report: null,
      silentTicks: 0,
      toldTopics: [],
      restsFor: [],
      beatsWanted,
    }
    this.#members.set(index, member)
    member.handle.line.listen((message) => {
      this.#hear(member, message)
    })
    if (this.#options.draining.aborted) member.handle.line.post({ kind: 'drain' })
    return member
  }

  #hear(member: CrewMember, message: FromWorker): void {
    member.silentTicks = 0
    switch (message.kind) {
      case 'ready':
        member.phase = 'ready'
        this.#options.onChange()
        return
      case 'heartbeat':
        member.report = message.report
        member.beatsWanted = Math.max(0, member.beatsWanted - 1)
        return
      case 'gone':
        for (const lane of message.lanes) member.grants.delete(lane)
        this.#options.onChange()
        return
      case 'at rest':
        member.restsFor = message.adoptions
        this.#options.onChange()
        return
      case 'drained':
        member.phase = 'drained'
        return
    }
  }
}

async function terminate({ handle }: CrewMember): Promise<void> {
  getInstruments().threadTerminations.add(1, { [ATTR_OUTBOX]: outboxName() })
  await handle.terminate()
}

/** Of the library's own complaints the sentence, which holds no secret, as starting it again mends nothing; of any other error its class. */
function causeOf(error: Error | null): string {
  if (error === null) return 'it ended by itself'
  const { code } = error as { readonly code?: unknown }
  return code === 'MESSAGING_INVALID_OPTION' ? error.message : error.name
}
