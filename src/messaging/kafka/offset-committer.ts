/**
 * Commits the offsets of one membership: the latest of each partition, one
 * request at a time, so that a slow answer gathers what comes meanwhile.
 *
 * An offset is given here only once everything below it is finished. A commit
 * that is lost is repeated by the next one, or costs a second delivery.
 */
import type { TopicPartition } from '../transport.ts'

/** Sends one commit to the group's coordinator. */
export type SendCommit = (offsets: readonly (TopicPartition & { offset: string })[]) => Promise<void>

/** The finished offsets of a membership on their way to the broker. */
export class OffsetCommitter {
  readonly #send: SendCommit
  #due = new Map<string, TopicPartition & { offset: bigint }>()
  #inFlight = new Map<string, TopicPartition & { offset: bigint }>()
  #sending: Promise<void> | null = null

  constructor(send: SendCommit) {
    this.#send = send
  }

  /** Everything of `where` below `offset` is finished. The commit follows. */
  finished({ topic, partition }: TopicPartition, offset: bigint): void {
    this.#due.set(`${topic}/${partition}`, { topic, partition, offset })
    void this.flush()
  }

  /** Forgets the partitions that are another member's now. */
  keepOnly(isOurs: (where: TopicPartition) => boolean): void {
    for (const offsets of [this.#due, this.#inFlight]) {
      for (const [place, where] of offsets) if (!isOurs(where)) offsets.delete(place)
    }
  }

  /** Resolves once all that was given has been sent, or a commit has failed. Never rejects. */
  async flush(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null
    })
    await this.#sending
  }

  async #sendAll(): Promise<void> {
    while (this.#due.size > 0) {
      const batch = this.#due
      this.#inFlight = batch
      this.#due = new Map()
      try {
        await this.#send([...batch.values()].map(({ offset, ...where }) => ({ ...where, offset: String(offset) })))
      } catch {
        // Kept for the next time, unless something newer is there already, or the partition went to another member
        // meanwhile: that one's offset would go back.
        this.#due = new Map([...batch, ...this.#due])
        return
      }
    }
  }
}
