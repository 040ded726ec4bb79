/** How the parts of the process end: one after another, and all of them in time. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger, Running } from '../messaging/index.ts'

export interface Part {
  readonly name: string
  readonly running: Running
  /** Milliseconds that the part gives to what it has in hand; after them it has cut it off. */
  readonly graceMs: number
}

export interface StopOptions {
  /** Milliseconds after which the next part begins to stop though the one before has not ended. */
  readonly handOnMs: number
  /** Milliseconds after which stopping is given up. */
  readonly deadlineMs: number
  readonly logger: Logger
}

/**
 * Stops `parts` in their order: each begins when the one before has ended, or
 * when `handOnMs` are over. Resolves to whether everything ended in good order:
 * false when a part had to cut off work, failed, or did not end by the deadline.
 */
export async function stopInOrder(
  parts: readonly Part[],
  { handOnMs, deadlineMs, logger }: StopOptions,
): Promise<boolean> {
  const deadline = AbortSignal.timeout(deadlineMs)
  const late = new Promise<'late'>((resolve) =>
    deadline.addEventListener('abort', () => resolve('late'), { once: true }),
  )
  const handOn = sleep(handOnMs, undefined, { ref: false })
  const stops: Promise<boolean>[] = []
  for (const part of parts) {
    const stopped = stopPart(part, logger)
    stops.push(stopped)
    await Promise.race([stopped, handOn, late])
  }
  const results = await Promise.race([Promise.all(stops), late])
  if (results !== 'late') return results.every(Boolean)
  logger.error({}, 'Stopping was given up: a part did not end in time')
  return false
}

async function stopPart({ name, running, graceMs }: Part, logger: Logger): Promise<boolean> {
  const from = performance.now()
  try {
    await running.stop()
  } catch (error) {
    logger.error({ part: name, error }, 'A part failed')
    return false
  }
  const ms = Math.round(performance.now() - from)
  const inTime = ms < graceMs
  if (inTime) logger.info({ part: name, ms }, 'Stopped')
  else logger.warn({ part: name, ms }, 'Stopped, and cut off what it had in hand')
  return inTime
}
