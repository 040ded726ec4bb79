/**
 * A worker's part in the adoption of another partition count: it sends nothing
 * to the topic that was placed by the old one, and says when nothing of that is
 * on its way any more.
 */
import { isDeepStrictEqual } from 'node:util'
import type { AdoptedTopic } from '../source.ts'
import type { Destinations } from './destinations.ts'
import type { Hand } from './hand.ts'
import type { HeldRuns } from './held-runs.ts'
import type { PartitionQueues } from './partition-queues.ts'

export interface AdoptionsOptions {
  readonly destinations: Destinations
  readonly hand: Hand
  readonly queues: PartitionQueues
  readonly heldRuns: HeldRuns
  /** What was placed by the old count in a read that is under way stays pending. */
  readonly onCleared: (topic: string) => void
  /** The adoptions for which nothing is on its way any more. */
  readonly onRest: (adoptions: readonly string[]) => void
}

export class Adoptions {
  readonly #options: AdoptionsOptions
  #told: readonly string[] = []

  constructor(options: AdoptionsOptions) {
    this.#options = options
  }

  /** Takes note of what the relay tells. What waited to be sent there is pending again. */
  learn(topics: readonly AdoptedTopic[]): void {
    const { destinations, hand, queues, onCleared } = this.#options
    for (const topic of destinations.adopt(topics)) {
      onCleared(topic)
      for (const taken of queues.clear(topic)) {
        hand.drop(taken)
        hand.touch([taken.event.lane])
      }
    }
  }

  /**
   * Says for which adoptions the worker is at rest. To be called between two
   * reads: in the middle of one there are events that were placed and are not
   * queued yet.
   */
  tellRest(): void {
    const { destinations, queues, heldRuns, onRest } = this.#options
    const resting = destinations.adopting.flatMap(({ topic, adoption }) =>
      queues.isIdle(topic) && heldRuns.isIdle(topic) ? [adoption] : [],
    )
    if (isDeepStrictEqual(resting, this.#told)) return
    this.#told = resting
    onRest(resting)
  }
}
