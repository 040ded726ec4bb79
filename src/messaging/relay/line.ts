/** The line between a relay and a worker: over a thread's port, or within one thread. */
import type { MessagePort } from 'node:worker_threads'
import { requireMethods } from '../options.ts'
import type { FromWorker, Line, ToWorker } from './protocol.ts'

/** The worker's end, over the port of its thread. Throws `InvalidOptionError` where there is none, as in the main thread. */
export function workerLine(port: MessagePort): Line<FromWorker, ToWorker> {
  requireMethods('port', port, ['postMessage', 'on', 'close'], "parentPort of 'node:worker_threads', in a thread")
  return {
    post: (message) => {
      port.postMessage(message)
    },
    listen: (listener) => {
      port.on('message', listener)
    },
    close: () => {
      port.close()
    },
  }
}

/** Both ends of a line within one thread. A message arrives after the sender's code has run to its end. */
export function inlineLine(): { relay: Line<ToWorker, FromWorker>; worker: Line<FromWorker, ToWorker> } {
  const toWorker = createDirection<ToWorker>()
  const toRelay = createDirection<FromWorker>()
  return {
    relay: { post: toWorker.post, listen: toRelay.listen, close: toRelay.close },
    worker: { post: toRelay.post, listen: toWorker.listen, close: toWorker.close },
  }
}

function createDirection<Message>() {
  let listener: ((message: Message) => void) | null = null
  const early: Message[] = []
  return {
    post: (message: Message) => {
      queueMicrotask(() => {
        if (listener === null) early.push(message)
        else listener(message)
      })
    },
    listen: (given: (message: Message) => void) => {
      listener = given
      for (const message of early.splice(0)) given(message)
    },
    close: () => {
      listener = () => {}
    },
  }
}
