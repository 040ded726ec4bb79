/**
 * Loaded into every thread of a service under test: the thread collects its
 * garbage each second, and writes to a file of its own in `TEST_MEMORY_DIR` how
 * many bytes it holds then. Resident memory says little: V8 takes more of it
 * than it needs, as much as there is, and gives it back when it likes.
 */
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { memoryUsage } from 'node:process'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { threadId } from 'node:worker_threads'

const file = join(process.env.TEST_MEMORY_DIR ?? '', String(threadId))
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

setInterval(() => {
  collectGarbage()
  // What is outside of the heap, such as the bodies of requests, is held as well.
  const { heapUsed, external } = memoryUsage()
  writeFileSync(`${file}.new`, String(heapUsed + external))
  renameSync(`${file}.new`, file)
}, 1_000).unref()
