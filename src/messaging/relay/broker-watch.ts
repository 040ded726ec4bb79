/** Knows whether the broker can be reached, also while there is nothing to publish. */
import type { Clock } from '../lifecycle/clock.ts'
import type { Publisher } from '../transport.ts'

/** Milliseconds between two looks at an idle broker. */
const LOOK_MS = 5_000
/** Milliseconds between two looks at one that did not answer. */
const LOOK_AGAIN_MS = 1_000

export class BrokerWatch {
  /** What is wrong with the broker; `null` when it answers. */
  problem: string | null = 'The broker has not answered yet'
  readonly #publisher: Publisher
  readonly #clock: Clock

  constructor({ publisher, clock }: { publisher: Publisher; clock: Clock }) {
    this.#publisher = publisher
    this.#clock = clock
  }

  /** Looks until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.problem = await this.#publisher.ping().then(
        () => null,
        (error: unknown) => `The broker cannot be reached (${reasonOf(error)})`,
      )
      await this.#clock.pause(this.problem === null ? LOOK_MS : LOOK_AGAIN_MS, signal)
    }
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'no answer'
  return 'reason' in error ? String(error.reason) : error.name
}
