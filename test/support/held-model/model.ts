/**
 * What the relay may do with a key's events, as simply as it can be said. Told
 * what is appended, sent, answered and written down, it names whatever should
 * not have been.
 *
 * A key's events go in order, each only behind those that are accepted, settled
 * or skipped, or behind them in the same batch. A held key's first event goes
 * alone and not before its time; of a parked one nothing goes. A skipped event
 * never goes, and a settled one not again.
 */
import type { HoldRequest, SkipRequest } from '../../../src/messaging/source.ts'

/** Attempts before a key is parked. */
export const MAX_ATTEMPTS = 2

export interface EventModel {
  readonly id: string
  accepted: boolean
  settled: boolean
  skipped: boolean
}

interface Hold {
  attempts: number
  parked: boolean
  /** When the first event may go. */
  notBefore: number
  /** An event has got through since: the rest may follow together. */
  proven: boolean
  asked: 'resume' | 'skip' | null
}

export interface KeyModel {
  readonly name: string
  readonly events: EventModel[]
  hold: Hold | null
}

export class RelayModel {
  readonly keys: readonly KeyModel[]
  readonly violations: string[] = []
  readonly #byId = new Map<string, { readonly key: KeyModel; readonly event: EventModel }>()

  constructor(names: readonly string[]) {
    this.keys = names.map((name) => ({ name, events: [], hold: null }))
  }

  appended(name: string, ids: readonly string[]): void {
    const key = this.key(name)
    for (const id of ids) {
      const event = { id, accepted: false, settled: false, skipped: false }
      key.events.push(event)
      this.#byId.set(id, { key, event })
    }
  }

  /** A relay hands a batch over; `ownsLanes` is whether its lanes are its own at that moment. */
  sends(ids: readonly string[], { now, ownsLanes }: { now: number; ownsLanes: boolean }): void {
    if (!ownsLanes) this.#wrong(`${ids.join(', ')} sent by a relay whose lane is another's`)
    const batch = new Set<string>()
    const keys = new Set(ids.map((id) => this.#find(id).key))
    for (const id of ids) {
      const { key, event } = this.#find(id)
      if (event.settled) this.#wrong(`${id} sent although it is settled`)
      if (event.skipped) this.#wrong(`${id} sent although it was skipped`)
      const open = key.events
        .slice(0, key.events.indexOf(event))
        .find((before) => !isDone(before) && !batch.has(before.id))
      if (open !== undefined) this.#wrong(`${id} sent before ${open.id}`)
      batch.add(id)
      if (key.hold === null) continue
      if (keys.size > 1) this.#wrong(`${id} of a held key sent with others'`)
      if (key.hold.parked) this.#wrong(`${id} of a parked key sent`)
      else if (!key.hold.proven && ids.length > 1) this.#wrong(`${ids.join(', ')} of a held key sent at once`)
      else if (!key.hold.proven && now < key.hold.notBefore)
        this.#wrong(`${id} sent ${key.hold.notBefore - now} ms too early`)
    }
  }

  accepted(ids: readonly string[]): void {
    for (const id of ids) {
      const { key, event } = this.#find(id)
      event.accepted = true
      if (key.hold !== null) key.hold.proven = true
    }
  }

  settled(ids: readonly string[]): void {
    for (const id of ids) {
      const { event } = this.#find(id)
      if (event.skipped) this.#wrong(`${id} settled although it was skipped`)
      event.settled = true
    }
  }

  /** What the database says of a key from now on. */
  held(name: string, request: HoldRequest, now: number): void {
    const key = this.key(name)
    const { attempts, park, retryInMs } = request
    const before = key.hold?.attempts ?? 0
    if (attempts < 1 || attempts > before + 1) this.#wrong(`${name} counts ${attempts} attempts after ${before}`)
    if (park !== attempts >= MAX_ATTEMPTS)
      this.#wrong(`${name} is ${park ? '' : 'not '}parked after ${attempts} attempts`)
    if (!park && retryInMs < 500) this.#wrong(`${name} waits ${retryInMs} ms alone`)
    key.hold = { attempts, parked: park, notBefore: now + retryInMs, proven: false, asked: null }
  }

  /** A parked key goes on, as `asked` has it. */
  goesOn(name: string, asked: 'resume' | 'skip', now: number): void {
    const key = this.key(name)
    if (key.hold?.parked !== true || key.hold.asked !== asked) this.#wrong(`${name} goes on, and nobody asked for it`)
    key.hold = { attempts: 0, parked: false, notBefore: now, proven: false, asked: null }
  }

  /** A skip was carried out; `onTopic` is whether the event is there. */
  skips(name: string, { eventId, published }: SkipRequest, { now, onTopic }: { now: number; onTopic: boolean }): void {
    const key = this.key(name)
    const { event } = this.#find(eventId)
    const first = key.events.find((other) => !other.settled && !other.skipped)
    if (key.hold?.parked !== true || key.hold.asked !== 'skip')
      this.#wrong(`${eventId} skipped, and nobody asked for it`)
    if (first !== event) this.#wrong(`${eventId} skipped, and ${first?.id} is the first`)
    if (published !== onTopic)
      this.#wrong(
        `${eventId} ${published ? 'counted as published' : 'skipped'}, and it is ${onTopic ? '' : 'not '}there`,
      )
    if (published) event.settled = true
    else event.skipped = true
    key.hold = { attempts: 0, parked: false, notBefore: now, proven: false, asked: null }
  }

  letGo(name: string): void {
    this.key(name).hold = null
  }

  /** An operator asks something of a key; it counts where the key is in the state for it. */
  asks(name: string, request: 'resume' | 'skip' | 'retry_now', now: number): void {
    const { hold } = this.key(name)
    if (hold === null || hold.parked === (request === 'retry_now')) return
    if (request === 'retry_now') hold.notBefore = Math.min(hold.notBefore, now)
    else hold.asked = request
  }

  key(name: string): KeyModel {
    const key = this.keys.find((other) => other.name === name)
    if (key === undefined) throw new Error(`There is no key ${name}`)
    return key
  }

  #find(id: string): { readonly key: KeyModel; readonly event: EventModel } {
    const found = this.#byId.get(id)
    if (found === undefined) throw new Error(`Nobody has appended ${id}`)
    return found
  }

  #wrong(what: string): void {
    this.violations.push(what)
  }
}

function isDone({ accepted, settled, skipped }: EventModel): boolean {
  return accepted || settled || skipped
}
