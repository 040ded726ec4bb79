/**
 * What the rest of the process learns of a commit: which lanes have new events.
 *
 * A relay in this process looks at these lanes at once, and the wake notifier
 * tells the relays of other processes. Losing a message costs a poll interval,
 * never an event.
 */
import { channel } from 'node:diagnostics_channel'

/** The channel's name, for `node:diagnostics_channel`. */
export const COMMITTED_CHANNEL = 'graphql-outbox:committed'

/** Sent once per committed transaction that appended events. */
export interface Committed {
  /** Lanes with new events, each once. */
  readonly lanes: readonly number[]
}

const committed = channel(COMMITTED_CHANNEL)

/** Tells the subscribers in this thread. */
export function publishCommitted(lanes: readonly number[]): void {
  const message: Committed = { lanes }
  committed.publish(message)
}

/** Calls `listener` after each commit in this thread, until the result is disposed of. */
export function onCommitted(listener: (message: Committed) => void): Disposable {
  const subscriber = (message: unknown) => {
    listener(message as Committed)
  }
  committed.subscribe(subscriber)
  return {
    [Symbol.dispose]: () => {
      committed.unsubscribe(subscriber)
    },
  }
}
