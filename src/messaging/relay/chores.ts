/**
 * A worker's small writes beside the main flow: tried again until they work,
 * and the one place that knows whether the database can be asked.
 */
import { type Backoff, backoffMs } from '../lifecycle/backoff.ts'
import type { Clock } from '../lifecycle/clock.ts'
import type { Logger } from '../lifecycle/logger.ts'
import { untraced } from '../telemetry/tracing.ts'

const databaseBackoff: Backoff = { firstMs: 50, maxMs: 2_000 }

export interface ChoresOptions {
  readonly clock: Clock
  readonly logger: Logger
  readonly cancelled: AbortSignal
  /** A chore has ended. */
  readonly onDone: () => void
}

export class Chores {
  readonly #options: ChoresOptions
  readonly #running = new Set<Promise<void>>()
  #failures = 0
  /** What the database said when it could not be asked; `null` when it can. */
  problem: string | null = null

  constructor(options: ChoresOptions) {
    this.#options = options
  }

  /** Does `work` in the background, again and again until it resolves or the worker is cancelled. */
  start(work: () => Promise<void>): void {
    const chore = untraced(async () => {
      await this.insist(work)
    }).finally(() => {
      this.#running.delete(chore)
      this.#options.onDone()
    })
    this.#running.add(chore)
  }

  /** Does `work` again and again until it resolves; resolves to whether it did, and was not cancelled before. */
  async insist(work: () => Promise<void>): Promise<boolean> {
    const { cancelled } = this.#options
    while (!cancelled.aborted) {
      try {
        await work()
        this.succeeded()
        return true
      } catch (error) {
        await this.failed(error, cancelled)
      }
    }
    return false
  }

  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running)
  }

  /** Notes that the database answered. */
  succeeded(): void {
    this.#failures = 0
    this.problem = null
  }

  /** Notes that it did not, and waits a little, longer each time, or until `signal` aborts. */
  async failed(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options
    const code = error instanceof Error && 'code' in error ? String(error.code) : nameOf(error)
    if (this.problem === null) logger.warn({ code }, 'The database cannot be asked')
    this.problem = `The relay cannot ask the database (${code})`
    this.#failures += 1
    await clock.pause(backoffMs(databaseBackoff, this.#failures, clock.random()), signal)
  }
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : 'no answer'
}
