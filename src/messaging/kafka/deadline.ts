/** An end to waiting: a time, or the caller's signal, whichever is first. */

/** Aborts `signal` after its time or with the caller. Dispose it once the work has ended. */
export interface Deadline extends Disposable {
  readonly signal: AbortSignal
  /** Which of the two it was. */
  reason(): 'ABORTED' | 'DELIVERY_TIMEOUT'
}

/** Begins a deadline of `ms` milliseconds that also ends with `outer`. */
export function startDeadline(ms: number, outer: AbortSignal): Deadline {
  const controller = new AbortController()
  const end = () => {
    controller.abort()
  }
  const timer = setTimeout(end, ms)
  outer.addEventListener('abort', end, { once: true })
  if (outer.aborted) end()
  return {
    signal: controller.signal,
    reason: () => (outer.aborted ? 'ABORTED' : 'DELIVERY_TIMEOUT'),
    [Symbol.dispose]() {
      clearTimeout(timer)
      outer.removeEventListener('abort', end)
    },
  }
}

/** What {@link unlessAborted} rejects with. */
export class Aborted extends Error {
  override readonly name = 'Aborted'
}

/** Waits for `work`, but not beyond `signal`: rejects with {@link Aborted} then, and leaves the work to itself. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  work.catch(() => {})
  if (signal.aborted) throw new Aborted()
  const { promise, reject } = Promise.withResolvers<never>()
  const onAbort = () => {
    reject(new Aborted())
  }
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
