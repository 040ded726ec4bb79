/** How a relay gets its workers: as threads, or within its own thread. */
import { Worker } from 'node:worker_threads'
import { inlineLine } from './line.ts'
import type { FromWorker, Line, ToWorker } from './protocol.ts'

/** A worker as the relay holds it. */
export interface WorkerHandle {
  readonly line: Line<ToWorker, FromWorker>
  /** Resolves when the worker has ended: with what it died of, or `null`. Never rejects. */
  readonly ended: Promise<Error | null>
  /** Ends it at once. */
  terminate(): Promise<void>
}

/** Worker threads for a relay. */
export interface RelayThreads {
  /** The thread's entry file: the application's own, which calls `runRelayWorker`. */
  readonly entry: URL
  /** How many threads. */
  readonly count: number
  /** Plain data for the thread with this index, from 0, as its `workerData`. */
  readonly workerData?: (index: number) => unknown
}

/** Starts the thread with this index. */
export function spawnThread({ entry, workerData }: RelayThreads, index: number): WorkerHandle {
  const worker = new Worker(entry, { workerData: workerData?.(index), name: `relay-${index}` })
  let failure: Error | null = null
  worker.on('error', (error) => {
    failure = error instanceof Error ? error : new Error('The thread threw something that is no error')
  })
  const ended = new Promise<Error | null>((resolve) => {
    worker.once('exit', (code) => {
      resolve(failure ?? (code === 0 ? null : new Error(`The thread ended with code ${code}`)))
    })
  })
  return {
    line: {
      post: (message) => {
        worker.postMessage(message)
      },
      listen: (listener) => {
        worker.on('message', listener)
      },
      close: () => {},
    },
    ended,
    terminate: async () => {
      await worker.terminate()
    },
  }
}

/** Runs a worker in this thread. It cannot be terminated: it ends when it has drained. */
export function spawnInline(run: (line: Line<FromWorker, ToWorker>) => Promise<void>): WorkerHandle {
  const { relay, worker } = inlineLine()
  const ended = run(worker).then(
    () => null,
    (error: unknown) => (error instanceof Error ? error : new Error('The worker threw something that is no error')),
  )
  return {
    line: relay,
    ended,
    terminate: async () => {
      relay.post({ kind: 'cancel' })
      await ended
    },
  }
}
