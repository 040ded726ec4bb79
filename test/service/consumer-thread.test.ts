import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { silentLogger } from '../../src/messaging/index.ts'
import { type ConsumerThread, startConsumerThread } from '../../src/service/consumer-thread.ts'

/** A thread's entry, written out: it tells its id as its only problem, and then does `rest`. */
function entry(rest: string): URL {
  const source = `
    import { parentPort, threadId } from 'node:worker_threads'
    parentPort.postMessage({ kind: 'status', status: { ready: true, problems: ['thread ' + threadId] } })
    ${rest}`
  return new URL(`data:text/javascript,${encodeURIComponent(source)}`)
}

const UNTIL_DRAINED = `parentPort.on('message', () => parentPort.close())`

/** What the thread says of itself, once it has said something that `wanted` accepts. */
async function problemOf(thread: ConsumerThread, wanted: (problem: string) => boolean): Promise<string> {
  for (;;) {
    const [problem = ''] = thread.status().problems
    if (wanted(problem)) return problem
    await sleep(5)
  }
}

test('the thread is started, speaks for itself, and ends when it is drained', async () => {
  await using thread = startConsumerThread({ logger: silentLogger, entry: entry(UNTIL_DRAINED) })
  expect(thread.status()).toEqual({ ready: false, problems: ['Starting'] })

  const problem = await problemOf(thread, (text) => text.startsWith('thread'))
  await thread.stop()

  expect(problem).toMatch(/^thread \d+$/)
  await thread.done
})

test.each([
  [
    'dies of an error',
    `setTimeout(() => { throw new TypeError('secret') }, 20)`,
    'it failed with TypeError, and the log has more',
  ],
  ['returns', `setTimeout(() => process.exit(0), 20)`, 'it gave no reason'],
])('a thread that %s is replaced, and is not ready meanwhile', async (_how, rest, reason) => {
  await using thread = startConsumerThread({ logger: silentLogger, entry: entry(rest) })
  const first = await problemOf(thread, (text) => text.startsWith('thread'))

  const between = await problemOf(thread, (text) => text.includes('has ended'))
  expect(between).toContain(reason)
  expect(thread.status().ready).toBe(false)

  const second = await problemOf(thread, (text) => text.startsWith('thread'))
  expect(second).not.toBe(first)
})
