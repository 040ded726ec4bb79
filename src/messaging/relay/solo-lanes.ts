/**
 * Lanes whose owners keep dying: their events go one by one, and each attempt
 * is counted before the send. An event that nobody has survived to send is
 * taken for the cause, and its key is parked.
 */
import type { OutboxEvent } from '../envelope.ts'
import type { Ownership, RelaySource } from '../source.ts'
import type { Chores } from './chores.ts'
import type { Hand, ReadPlan } from './hand.ts'

/** Sends that nobody survived, before an event is taken for the cause. */
const MAX_ATTEMPTS = 3

/** Why a key is parked whose first event nobody has survived to send. */
export const DEADLY = 'the relay died each time it sent this event'

export interface SoloLanesOptions {
  readonly source: RelaySource
  readonly hand: Hand
  readonly chores: Chores
  readonly onFenced: (ownership: Ownership, lanes: readonly number[]) => void
}

export class SoloLanes {
  readonly #options: SoloLanesOptions

  constructor(options: SoloLanesOptions) {
    this.#options = options
  }

  /** Whether an event of a lane that goes alone may be sent; `deadly` when its senders have died each time. */
  async admit(event: OutboxEvent): Promise<'send' | 'deadly' | 'lost'> {
    const { source, hand, onFenced } = this.#options
    const ownership = hand.ownership([event.lane])
    const attempts = await source.recordAttempt(ownership, event)
    if (attempts > MAX_ATTEMPTS) return 'deadly'
    if (attempts > 0) return 'send'
    onFenced(ownership, [event.lane])
    return 'lost'
  }

  /** Notes that sends were answered, if only by a failure: an outage kills nobody, however often it is met. */
  survived(events: readonly OutboxEvent[]): void {
    const { source, hand, chores, onFenced } = this.#options
    for (const event of events) {
      if (!hand.goesAlone(event.lane)) continue
      const ownership = hand.ownership([event.lane])
      chores.start(async () => {
        onFenced(ownership, (await source.clearAttempts(ownership, event)).fencedLanes)
      })
    }
  }

  /** Resets the count of those lanes, among the ones just read, of which all that was pending at their takeover is settled. */
  recover(plan: readonly ReadPlan[], events: readonly OutboxEvent[]): void {
    const { source, hand, chores } = this.#options
    const recovered = hand.recovered(plan, events)
    if (recovered.length === 0) return
    const ownership = hand.ownership(recovered)
    for (const lane of recovered) hand.cleared(lane)
    chores.start(async () => {
      await source.clearCrashes(ownership)
    })
  }
}
