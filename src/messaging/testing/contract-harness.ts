/** What a driver brings to be held to the contracts: a broker, and a look into it that does not go through the driver. */
import type { Publisher, Subscriber, TopicPartition } from '../transport.ts'

/** A record as an independent reader finds it. */
export interface FoundRecord {
  readonly offset: bigint
  readonly timestamp: Date
  readonly key: string
  readonly value: Buffer | null
  readonly headers: Readonly<Record<string, string>>
}

/** One test's broker. Everything of it ends with its disposal. */
export interface ContractBroker extends AsyncDisposable {
  /** A new publisher; the broker's disposal closes it. */
  createPublisher(): Publisher
  /** A subscriber as a process of its own has one. */
  createSubscriber(): Subscriber
  /** All records of a partition, in offset order. */
  read(where: TopicPartition): Promise<readonly FoundRecord[]>
  /** What a group has committed; `null` if nothing. */
  committed(groupId: string, where: TopicPartition): Promise<bigint | null>
}

/** How a contract suite is run: with any test runner that has a `test` function. */
export interface ContractHarness {
  /** Registers one test. */
  readonly test: (title: string, work: () => Promise<void>) => void
  readonly open: () => Promise<ContractBroker>
  /** A topic or group name that nothing else uses. */
  readonly unique: (name: string) => string
  /** Bytes of a value that the broker refuses as too large, and the driver alone does not. */
  readonly tooLargeBytes: number
}

const POLL_MS = 20

/**
 * Resolves once `holds` resolves to true; rejects after `ms` milliseconds with
 * `what` it was that never came. For a state that stays, or a count that only
 * grows: one that passes may come and go between two looks.
 * @defaultValue a minute, which is no limit to what is tested: it ends what is hopeless, also on a busy machine
 */
export async function eventually(what: string, holds: () => boolean | Promise<boolean>, ms = 60_000): Promise<void> {
  const until = performance.now() + ms
  while (!(await holds())) {
    if (performance.now() > until) throw new Error(`Never came: ${what}`)
    await new Promise((resolve) => {
      setTimeout(resolve, POLL_MS)
    })
  }
}
