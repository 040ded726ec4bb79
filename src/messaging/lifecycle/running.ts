import { type Clock, systemClock } from './clock.ts'

/** Background work that somebody owns: the relay, a consumer, the HTTP server. */
export interface Running extends AsyncDisposable {
  /** Settles once the work has ended; rejects only if it ended by failing. */
  readonly done: Promise<void>
  /** Drains and ends the work. Safe to call twice: both calls share one promise. */
  stop(): Promise<void>
}

/** How work learns that it should end: first politely, then not. */
export interface Shutdown {
  /** Aborts first: take nothing new, finish what is in hand. */
  readonly draining: AbortSignal
  /** Aborts when the grace period is over: give up what is in hand. */
  readonly cancelled: AbortSignal
}

/**
 * Starts `work` and hands back the only means to end it.
 *
 * `work` returns when it has drained. What it rejects with after `cancelled`
 * is the cancellation itself, so it does not count as a failure. `graceMs` is
 * how long draining may last on `clock` before it is cancelled.
 */
export function run(
  work: (shutdown: Shutdown) => Promise<void>,
  { graceMs, clock = systemClock }: { graceMs: number; clock?: Clock },
): Running {
  const drain = new AbortController()
  const cancel = new AbortController()

  const done = work({ draining: drain.signal, cancelled: cancel.signal }).catch((error: unknown) => {
    if (!cancel.signal.aborted) throw error
  })
  // The owner learns of a failure by `done`; without this, one that has not
  // looked yet would end the process.
  done.catch(() => {})

  async function stopOnce(): Promise<void> {
    drain.abort()
    const ended = new AbortController()
    const grace = clock.pause(graceMs, ended.signal).then(() => {
      if (!ended.signal.aborted) cancel.abort()
    })
    await done.finally(() => {
      ended.abort()
    })
    await grace
  }

  let stopping: Promise<void> | undefined
  const stop = () => {
    stopping ??= stopOnce()
    return stopping
  }
  return { done, stop, [Symbol.asyncDispose]: stop }
}
