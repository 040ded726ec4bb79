/** Breaks a simulated system at random and mends it again; writes down what it did. */

import type { Fault } from '../../../src/messaging/testing/faults.ts'
import type { HistoryEntry } from '../../../src/messaging/testing/history/evidence.ts'
import type { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import type { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import type { CallFault } from './simulated-process.ts'
import type { SimulatedRelay } from './simulated-relays.ts'
import type { VirtualTime } from './virtual-time.ts'

export interface NemesisOptions {
  readonly time: VirtualTime
  readonly broker: InMemoryBroker
  readonly outbox: InMemoryOutbox
  readonly history: HistoryEntry[]
}

type FaultName =
  | 'kill relay'
  | 'freeze relay'
  | 'stop relay'
  | 'partition away'
  | 'broker away'
  | 'answers lost'
  | 'requests lost'
  | 'slow broker'
  | 'record refused'
  | 'topic forbidden'
  | 'database away'
  | 'database answers lost'
  | 'operator resumes'
  | 'operator skips'
  | 'operator retries'

const FAULTS: readonly FaultName[] = [
  'kill relay',
  'freeze relay',
  'stop relay',
  'partition away',
  'broker away',
  'answers lost',
  'requests lost',
  'slow broker',
  'record refused',
  'topic forbidden',
  'database away',
  'database answers lost',
  'operator resumes',
  'operator skips',
  'operator retries',
]

export class Nemesis {
  /** Faults that have landed. */
  landed = 0
  readonly #options: NemesisOptions
  readonly #active = new Set<Promise<void>>()
  readonly #end = new AbortController()
  #relays: SimulatedRelay[] = []
  #startRelay: () => SimulatedRelay = () => {
    throw new Error('The nemesis is not attached')
  }
  #databaseAway = 0
  #databaseLosesAnswers = 0
  #operations = 0

  constructor(options: NemesisOptions) {
    this.#options = options
  }

  attach(relays: SimulatedRelay[], startRelay: () => SimulatedRelay): void {
    this.#relays = relays
    this.#startRelay = startRelay
  }

  databaseFault(): CallFault {
    const { time } = this.#options
    if (this.#databaseAway > 0) return 'refused'
    if (this.#databaseLosesAnswers > 0 && time.chance(0.3)) return time.chance(0.5) ? 'answer lost' : 'refused'
    return 'none'
  }

  /** Begins, and goes on until `heal`. */
  begin(): void {
    void this.#rage()
  }

  /** Mends everything; keys that were parked meanwhile are resumed or skipped by an operator as long as there are any. */
  heal(): void {
    this.#end.abort()
    void this.#operate()
  }

  /** Nothing is broken any more, and no key is held. */
  calm(): boolean {
    return this.#active.size === 0 && this.#options.outbox.keys.length === 0
  }

  async #rage(): Promise<void> {
    const { time } = this.#options
    while (!this.#end.signal.aborted) {
      await time.pause(time.between(50, 2_000), this.#end.signal)
      if (this.#end.signal.aborted) return
      const name = time.pick(FAULTS)
      const fault = this.#cause(name).finally(() => this.#active.delete(fault))
      this.#active.add(fault)
    }
  }

  async #operate(): Promise<void> {
    const { time, outbox } = this.#options
    for (;;) {
      // A request that is being carried out is left alone: to be skipped may take its time.
      for (const key of outbox.keys) {
        if (key.state === 'parked' && key.request === null) outbox.request(key, time.chance(0.3) ? 'skip' : 'resume')
      }
      await time.pause(2_000)
    }
  }

  async #cause(name: FaultName): Promise<void> {
    const { time, history } = this.#options
    this.#operations += 1
    const said = { actor: 'nemesis', operation: `fault-${this.#operations}`, name }
    history.push({ ...said, kind: 'invoke', at: time.now() })
    const end = this.#inflict(name)
    this.landed += 1
    await time.pause(this.#lengthOf(name), this.#end.signal)
    await end()
    history.push({ ...said, kind: 'ok', at: time.now() })
  }

  /** Milliseconds. */
  #lengthOf(name: FaultName): number {
    const { time } = this.#options
    switch (name) {
      // One that slept for long wakes up where others have gone on, and an operator has been.
      case 'freeze relay':
        return time.chance(0.2) ? time.between(20_000, 90_000) : time.between(100, 12_000)
      // Long enough for keys to be parked.
      case 'record refused':
        return time.between(50, 15_000)
      default:
        return time.between(50, 4_000)
    }
  }

  /** Breaks something; what it returns mends it. */
  #inflict(name: FaultName): () => void | Promise<void> {
    const { time, broker } = this.#options
    switch (name) {
      case 'kill relay':
        return this.#replace(({ process }) => process.kill())
      case 'stop relay':
        return this.#replace(({ relay }) => void relay.stop())
      case 'freeze relay': {
        const { process } = time.pick(this.#relays)
        process.freeze()
        return () => process.thaw()
      }
      case 'partition away':
        return broker.faults.outage({ topic: 'order.events', partition: time.between(0, 7) })
      case 'broker away':
        return broker.faults.outage()
      case 'answers lost':
        return this.#sometimes({ kind: 'answer lost' })
      case 'requests lost':
        return this.#sometimes({ kind: 'request lost' })
      case 'slow broker':
        return broker.faults.add(() => ({ kind: 'delayed', ms: time.between(0, 900) }))
      case 'record refused': {
        const digit = String(time.between(0, 9))
        return broker.faults.refuseRecords(({ headers }) => headers.event_id?.endsWith(digit) ?? false)
      }
      case 'topic forbidden':
        return broker.faults.forbid('order.events')
      case 'database away':
        this.#databaseAway += 1
        return () => {
          this.#databaseAway -= 1
        }
      case 'database answers lost':
        this.#databaseLosesAnswers += 1
        return () => {
          this.#databaseLosesAnswers -= 1
        }
      case 'operator resumes':
        return this.#ask('resume', 0.5)
      case 'operator skips':
        return this.#ask('skip', 0.7)
      case 'operator retries':
        return this.#ask('retry_now', 0.7)
    }
  }

  /** An operator asks something of some of the keys that are held now. There is nothing to mend. */
  #ask(request: 'resume' | 'skip' | 'retry_now', share: number): () => void {
    const { time, outbox } = this.#options
    for (const key of outbox.keys) if (time.chance(share)) outbox.request(key, request)
    return () => {}
  }

  /** Ends a relay; mending starts another in its place. */
  #replace(end: (relay: SimulatedRelay) => void): () => void {
    const index = this.#options.time.between(0, this.#relays.length - 1)
    const relay = this.#relays[index]
    if (relay) end(relay)
    return () => {
      this.#relays[index] = this.#startRelay()
    }
  }

  #sometimes(fault: Fault): () => void {
    const { time, broker } = this.#options
    return broker.faults.add(() => (time.chance(0.4) ? fault : null))
  }
}
