/** What the main thread and the consumer's thread say to each other. Plain data: it is cloned on the way. */
import type { Status } from '../messaging/index.ts'

export type ToConsumerThread =
  /** Finish what is in hand and end. */
  { readonly kind: 'drain' }

export type FromConsumerThread =
  /** Sent every second, whatever the consumer does. */
  { readonly kind: 'status'; readonly status: Status }
