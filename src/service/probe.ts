/** A check that may be asked by anybody at any time: it answers within its time, and asks no more often than it must. */
import type { Status } from '../messaging/index.ts'

export interface ProbeOptions {
  /** Milliseconds after which a check that has not answered counts as failed. */
  readonly timeoutMs: number
  /** Milliseconds for which an answer stands. */
  readonly freshMs: number
  /** What is wrong when the check fails, as a sentence; what it failed with is left to the log. */
  readonly problem: string
}

/**
 * Turns `check` into a status. A check that hangs is not started a second time
 * while it hangs, so that a dead database does not collect probes.
 */
export function createProbe(check: () => Promise<unknown>, options: ProbeOptions): () => Promise<Status> {
  const failed: Status = { ready: false, problems: [options.problem] }
  let running: Promise<Status> | null = null
  let last: { readonly status: Status; readonly at: number } | null = null

  async function ask(): Promise<Status> {
    const status = await check().then(
      (): Status => ({ ready: true, problems: [] }),
      () => failed,
    )
    last = { status, at: performance.now() }
    running = null
    return status
  }

  return async () => {
    if (last && performance.now() - last.at < options.freshMs) return last.status
    running ??= ask()
    const { promise: late, resolve } = Promise.withResolvers<Status>()
    const timer = setTimeout(resolve, options.timeoutMs, failed)
    return await Promise.race([running, late]).finally(() => clearTimeout(timer))
  }
}
