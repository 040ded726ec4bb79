/** Two real relays over memory in virtual time, with everything that they do told to the model. */

import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import { murmur2 } from '../../../src/messaging/outbox/lane.ts'
import type { HoldRequest, KeyRef, Ownership, Settlement, SkipRequest } from '../../../src/messaging/source.ts'
import { InMemoryBroker } from '../../../src/messaging/testing/in-memory-broker.ts'
import { InMemoryOutbox } from '../../../src/messaging/testing/in-memory-outbox.ts'
import {
  resetOwners,
  type SimulatedRelay,
  type Surroundings,
  startSimulatedRelay,
  topicFor,
} from '../simulation/simulated-relays.ts'
import { VirtualTime } from '../simulation/virtual-time.ts'
import { MAX_ATTEMPTS, type RelayModel } from './model.ts'

const TOPIC = 'order.events'
const MINUTE_MS = 60_000

export interface SceneOptions {
  readonly seed: number
  readonly batchSize: number
  readonly partitionCount: number
}

export class Scene {
  readonly time: VirtualTime
  readonly broker: InMemoryBroker
  readonly outbox: ObservedOutbox
  readonly model: RelayModel
  readonly #around: Surroundings
  readonly #relays: SimulatedRelay[] = []
  /** Ids that the broker refuses, with what becomes of their first request. */
  readonly #refused = new Map<string, 'answer lost' | 'request lost' | null>()
  #ids = 0

  constructor(model: RelayModel, { seed, batchSize, partitionCount }: SceneOptions) {
    resetOwners()
    this.model = model
    this.time = new VirtualTime(seed)
    this.broker = new InMemoryBroker({
      clock: this.time,
      now: () => new Date(this.time.now()),
      topics: { [TOPIC]: partitionCount },
    })
    this.outbox = new ObservedOutbox(this)
    this.#beginRefusals()
    this.#around = {
      time: this.time,
      outbox: this.outbox,
      broker: this.broker,
      partitionCount,
      batchSize,
      maxAttempts: MAX_ATTEMPTS,
      deliveryTimeoutMs: 0,
      databaseLatencyMs: 0,
      databaseFault: () => 'none',
      onUnknownOutcome: () => {},
      onDefect: (problem) => model.violations.push(problem),
      onSend: (batch, relay) => {
        const ids = batch.records.map(({ headers }) => headers.event_id ?? '')
        const ownsLanes = ids.every((id) => relay.owners.has(this.outbox.ownerOf(id) ?? ''))
        model.sends(ids, { now: this.time.now(), ownsLanes })
      },
      onAccepted: (batch) => model.accepted(batch.records.map(({ headers }) => headers.event_id ?? '')),
    }
    this.#relays.push(startSimulatedRelay(this.#around), startSimulatedRelay(this.#around))
  }

  /** Appends to a key; returns the first event's id. */
  append(name: string, count: number): string | undefined {
    const events = Array.from({ length: count }, () => {
      this.#ids += 1
      return {
        id: `${name}-${this.#ids}`,
        type: 'OrderChanged',
        aggregate: { type: 'order', id: name },
        version: null,
        payload: '{}',
        occurredAt: new Date(this.time.now()),
        headers: {},
        trace: null,
        topic: null,
      }
    })
    const lanes = this.outbox.append(events).map(({ lane }) => lane)
    this.model.appended(
      name,
      events.map(({ id }) => id),
    )
    for (const relay of this.#relays) relay.wake(lanes)
    return events[0]?.id
  }

  /** Has the broker refuse an event, from the second request on where something else becomes of the first. */
  refuse(id: string | undefined, first: 'answer lost' | 'request lost' | null = null): void {
    if (id !== undefined) this.#refused.set(id, first)
  }

  refuses(id: string): boolean {
    return this.#refused.has(id)
  }

  /** Ends the refusals of a key's events. */
  accept(name: string): void {
    for (const { id } of this.model.key(name).events) this.#refused.delete(id)
  }

  freeze(index: number): void {
    this.#relays[index]?.process.freeze()
  }

  thaw(index: number): void {
    this.#relays[index]?.process.thaw()
  }

  /** Ends a relay without a word, and starts another in its place. */
  kill(index: number): void {
    this.#relays[index]?.process.kill()
    this.#relays[index] = startSimulatedRelay(this.#around)
  }

  /** Stops a relay in good order, and starts another in its place. */
  restart(index: number): void {
    void this.#relays[index]?.relay.stop()
    this.#relays[index] = startSimulatedRelay(this.#around)
  }

  wake(index: number): void {
    this.#relays[index]?.wake(this.outbox.lanes.map(({ lane }) => lane))
  }

  ask(name: string, request: 'resume' | 'skip' | 'retry_now'): void {
    this.model.asks(name, request, this.time.now())
    for (const key of this.outbox.keys) if (key.aggregateId === name) this.outbox.request(key, request)
  }

  async pass(ms: number): Promise<void> {
    await this.time.passUntil(() => false, ms)
  }

  /** Ends all faults but the refusals. */
  mend(): void {
    this.broker.faults.clear()
    this.#beginRefusals()
    for (const { process } of this.#relays) process.thaw()
  }

  /** Mends everything and lets an operator resume what is parked, until nothing is left; then ends. */
  async finish(): Promise<void> {
    this.#refused.clear()
    this.mend()
    for (let look = 0; look < 20 && !this.outbox.isDrained; look += 1) {
      for (const { name, hold } of this.model.keys) if (hold?.parked && hold.asked === null) this.ask(name, 'resume')
      await this.time.passUntil(() => this.outbox.isDrained, 20_000)
    }
    let stopped = false
    void Promise.all(this.#relays.map(({ relay }) => relay.stop())).then(() => {
      stopped = true
    })
    await this.time.passUntil(() => stopped, MINUTE_MS)
  }

  #beginRefusals(): void {
    this.broker.faults.add(({ records }) => {
      const id = records.map(({ headers }) => headers.event_id ?? '').find((each) => this.#refused.has(each))
      if (id === undefined) return null
      const first = this.#refused.get(id) ?? null
      this.#refused.set(id, null)
      return first === null ? { kind: 'refused', failure: 'record', reason: 'INVALID_RECORD' } : { kind: first }
    })
  }

  /** The ids of a key's records, first copies only, in the order of the topic. */
  topicOf(name: string): readonly string[] {
    const ids = this.broker.records(TOPIC).flatMap(({ key, id }) => (key === name && id !== null ? [id] : []))
    return [...new Set(ids)]
  }
}

/** An outbox that tells the model what is written to it. */
class ObservedOutbox extends InMemoryOutbox {
  readonly #scene: Scene
  readonly #lanes = new Map<string, number>()

  constructor(scene: Scene) {
    super({ clock: scene.time, hash: murmur2, topicFor })
    this.#scene = scene
  }

  get isDrained(): boolean {
    return this.pendingCount === 0 && this.keys.length === 0
  }

  /** Who owns an event's lane. */
  ownerOf(id: string): string | null {
    return this.lanes.find(({ lane }) => lane === this.#lanes.get(id))?.owner ?? null
  }

  override append(events: Parameters<InMemoryOutbox['append']>[0]): readonly OutboxEvent[] {
    const appended = super.append(events)
    for (const { id, lane } of appended) this.#lanes.set(id, lane)
    return appended
  }

  override async settle(ownership: Ownership, events: readonly OutboxEvent[]): Promise<Settlement> {
    const before = this.marks.length
    const result = await super.settle(ownership, events)
    this.#scene.model.settled(this.marks.slice(before).map(({ event }) => event.id))
    return result
  }

  override async hold(ownership: Ownership, key: KeyRef, request: HoldRequest): Promise<Settlement> {
    const result = await super.hold(ownership, key, request)
    const { model, time } = this.#scene
    if (result.fencedLanes.length === 0) model.held(key.aggregateId, request, time.now())
    return result
  }

  override async skip(ownership: Ownership, key: KeyRef, request: SkipRequest): Promise<Settlement> {
    const onTopic = this.#scene.topicOf(key.aggregateId).includes(request.eventId)
    const result = await super.skip(ownership, key, request)
    const { model, time } = this.#scene
    if (result.changed > 0) model.skips(key.aggregateId, request, { now: time.now(), onTopic })
    return result
  }

  override async goOn(ownership: Ownership, key: KeyRef, asked: 'resume' | 'skip'): Promise<Settlement> {
    const result = await super.goOn(ownership, key, asked)
    const { model, time } = this.#scene
    if (result.changed > 0) model.goesOn(key.aggregateId, asked, time.now())
    return result
  }

  override async releaseKey(ownership: Ownership, key: KeyRef): Promise<boolean> {
    const isReleased = await super.releaseKey(ownership, key)
    if (isReleased) this.#scene.model.letGo(key.aggregateId)
    return isReleased
  }
}
