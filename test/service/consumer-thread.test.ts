import { randomUUID } from 'node:crypto'
import { BroadcastChannel } from 'node:worker_threads'
import { expect, test } from '@jest/globals'
import { silentLogger } from '../../src/messaging/index.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { type ConsumerThread, startConsumerThread } from '../../src/service/consumer-thread.ts'

/** A thread's entry, written out: once it has done `first`, so that it hears what answers its word, it tells its id as its only problem. */
function entry(first: string): URL {
  const source = `
    import { BroadcastChannel, parentPort, threadId } from 'node:worker_threads'
    ${first}
    parentPort.postMessage({ kind: 'status', status: { ready: true, problems: ['thread ' + threadId] } })`
  return new URL(`data:text/javascript,${encodeURIComponent(source)}`)
}

const UNTIL_DRAINED = `parentPort.on('message', () => process.exit(0))`

/** What the thread says of itself, once it has said something else than `other` that begins with 'thread'. */
async function idOf(thread: ConsumerThread, other = ''): Promise<string> {
  let found = ''
  await eventually('a thread speaks', () => {
    const [problem = ''] = thread.status().problems
    found = problem.startsWith('thread') && problem !== other ? problem : ''
    return found !== ''
  })
  return found
}

test('the thread is started, speaks for itself, and ends when it is drained', async () => {
  await using thread = startConsumerThread({ logger: silentLogger, entry: entry(UNTIL_DRAINED) })
  expect(thread.status()).toEqual({ ready: false, problems: ['Starting'] })

  const problem = await idOf(thread)
  await thread.stop()

  expect(problem).toMatch(/^thread \d+$/)
  await thread.done
})

test.each([
  ['dies of an error', `throw new TypeError('secret')`, 'it failed with TypeError, and the log has more'],
  ['returns', 'process.exit(0)', 'it gave no reason'],
])('a thread that %s is replaced, and is not ready meanwhile', async (_how, end, reason) => {
  // It lives until it is told to end, and no next one can come up unseen.
  const name = randomUUID()
  const channel = new BroadcastChannel(name)
  using _channel = { [Symbol.dispose]: () => channel.close() }
  const told = `const channel = new BroadcastChannel('${name}'); channel.onmessage = () => { ${end} }; ${UNTIL_DRAINED}`
  const between: unknown[] = []
  const logger = { ...silentLogger, error: () => between.push(thread.status()) }
  await using thread = startConsumerThread({ logger, entry: entry(told) })
  const first = await idOf(thread)

  channel.postMessage('end')

  expect(await idOf(thread, first)).not.toBe(first)
  expect(between).toEqual([
    { ready: false, problems: [expect.stringContaining(`has ended and starts again: ${reason}`)] },
  ])
})
