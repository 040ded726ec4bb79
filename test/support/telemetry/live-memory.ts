/**
 * Loaded into every thread of a service under test: whenever the file `asked`
 * of `TEST_MEMORY_DIR` says something new, the thread collects its garbage and
 * writes to a file of its own, after the same words, how many bytes it holds.
 * Resident memory says little: V8 takes more of it than it needs, as much as
 * there is, and gives it back when it likes.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { memoryUsage } from 'node:process'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { threadId } from 'node:worker_threads'

const dir = process.env.TEST_MEMORY_DIR ?? ''
const asked = join(dir, 'asked')
const file = join(dir, `thread-${threadId}`)
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** V8 lets go of compiled code only when it was not run between some collections. */
const COLLECTIONS = 10

let answered = ''
answer(answered)
setInterval(() => {
  const question = existsSync(asked) ? readFileSync(asked, 'utf8') : ''
  if (question === answered) return
  answered = question
  answer(question)
}, 200).unref()

function answer(question: string): void {
  for (let count = 0; count < COLLECTIONS; count += 1) collectGarbage()
  // What is outside of the heap, such as the bodies of requests, is held as well.
  const { heapUsed, external } = memoryUsage()
  writeFileSync(`${file}.new`, `${question} ${heapUsed + external}`)
  renameSync(`${file}.new`, file)
}
