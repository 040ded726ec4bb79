/**
 * The main thread's side of the consumer: starts its thread, starts it again
 * when it has died, and says how it is.
 *
 * Effects and offsets are transactional, so a thread may die or be ended at any
 * moment: what it had in hand is delivered again.
 */
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import {
  backoffMs,
  type Logger,
  type Running,
  run,
  type Shutdown,
  type Status,
  systemClock,
} from '../messaging/index.ts'
import type { FromConsumerThread, ToConsumerThread } from './consumer-protocol.ts'
import type { TelemetryIdentity } from './telemetry-identity.ts'

/** Milliseconds that the consumer gives to what it has in hand when it stops. */
export const CONSUMER_GRACE_MS = 4_000
/** Milliseconds beyond the grace period for closing connections and flushing telemetry. */
const CLOSING_MS = 3_000
/** Milliseconds without a word after which the thread counts as not answering. */
const SILENT_AFTER_MS = 5_000
/** Milliseconds without a word after which the thread is ended and started anew; long, since a starved machine is no reason. */
const WEDGED_AFTER_MS = 120_000
const BACKOFF = { firstMs: 500, maxMs: 30_000 }
/** Milliseconds that a thread has to live for its death to count as the first in a row. */
const SETTLED_MS = 60_000

export interface ConsumerThread extends Running {
  status(): Status
}

export interface ConsumerThreadOptions {
  readonly logger: Logger
  /** The thread's entry. @defaultValue consumer-worker beside this file */
  readonly entry?: URL
}

/** Starts the consumer's thread and keeps one running until it is stopped. */
export function startConsumerThread({ logger, entry = ownEntry() }: ConsumerThreadOptions): ConsumerThread {
  let status: Status = { ready: false, problems: ['Starting'] }
  let heardAt = performance.now()

  const hear = (message: FromConsumerThread) => {
    heardAt = performance.now()
    status = message.status
  }

  async function keepRunning(shutdown: Shutdown): Promise<void> {
    for (let failures = 0; !shutdown.draining.aborted; ) {
      const startedAt = performance.now()
      heardAt = startedAt
      const { problem, error } = await runThread(entry, hear, () => performance.now() - heardAt, shutdown)
      if (shutdown.draining.aborted) return
      failures = performance.now() - startedAt > SETTLED_MS ? 1 : failures + 1
      const pauseMs = backoffMs(BACKOFF, failures, Math.random())
      status = { ready: false, problems: [`The consumer's thread has ended and starts again: ${problem}`] }
      logger.error({ problem, error, failures, pauseMs }, 'The consumer thread has ended; it starts again')
      await systemClock.pause(pauseMs, shutdown.draining)
    }
  }

  const running = run(keepRunning, { graceMs: CONSUMER_GRACE_MS + CLOSING_MS })
  return {
    ...running,
    status() {
      const silentMs = performance.now() - heardAt
      if (silentMs < SILENT_AFTER_MS || !status.ready) return status
      return {
        ready: false,
        problems: [`The consumer's thread has not answered for ${Math.round(silentMs / 1_000)} s`],
      }
    },
  }
}

/** Why a thread has ended: the end of a sentence for operators, and what it threw, for the log. */
interface ThreadEnd {
  readonly problem: string
  readonly error: unknown
}

/** One thread's life, from its start to its exit. Never rejects. */
async function runThread(
  entry: URL,
  hear: (message: FromConsumerThread) => void,
  silentMs: () => number,
  { draining, cancelled }: Shutdown,
): Promise<ThreadEnd> {
  const telemetry: TelemetryIdentity = { serviceName: 'orders-summary', instance: 'consumer' }
  const worker = new Worker(entry, { workerData: { telemetry }, name: 'consumer' })
  const exited = new Promise((resolve) => worker.once('exit', resolve))
  let end: ThreadEnd = { problem: 'it gave no reason', error: null }
  worker.on('message', hear)
  worker.on('error', (error: unknown) => {
    end = { problem: `it failed with ${nameOf(error)}, and the log has more`, error }
  })
  const drain = () => worker.postMessage({ kind: 'drain' } satisfies ToConsumerThread)
  const terminate = () => void worker.terminate()
  const watch = setInterval(() => {
    if (silentMs() < WEDGED_AFTER_MS) return
    end = { problem: `it did not answer for ${WEDGED_AFTER_MS / 1_000} s`, error: null }
    terminate()
  }, 1_000)
  draining.addEventListener('abort', drain, { once: true })
  cancelled.addEventListener('abort', terminate, { once: true })
  if (draining.aborted) drain()

  await exited
  clearInterval(watch)
  draining.removeEventListener('abort', drain)
  cancelled.removeEventListener('abort', terminate)
  return end
}

/** An error's code or name: its message could hold anything. */
function nameOf(error: unknown): string {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown }
  return String(code ?? name ?? 'no error at all')
}

/** `tsc` rewrites imports and not URLs: the ending is this file's own. */
function ownEntry(): URL {
  return new URL(`./consumer-worker${extname(import.meta.filename)}`, import.meta.url)
}
