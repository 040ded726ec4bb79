/**
 * Loaded into every thread of a process under test: its time of day is off by
 * the milliseconds in the file `TEST_CLOCK_FILE`, and jumps when they change.
 * The monotonic clock is not touched. Each thread writes down what it has seen
 * last in a file of its own beside it.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { threadId } from 'node:worker_threads'

const file = process.env.TEST_CLOCK_FILE ?? ''
const seenFile = `${file}.${process.pid}-${threadId}`
const RealDate = Date
const now = RealDate.now
let shiftMs = 0

// A proxy and no subclass: a date that was made elsewhere is an instance all the same.
globalThis.Date = new Proxy(RealDate, {
  apply: () => new RealDate(now() + shiftMs).toString(),
  construct: (target, args, newTarget) =>
    Reflect.construct(target, args.length === 0 ? [now() + shiftMs] : args, newTarget),
  get: (target, name) => (name === 'now' ? () => now() + shiftMs : Reflect.get(target, name)),
})

function look(): void {
  const seen = Number(readFileSync(file, 'utf8'))
  if (seen === shiftMs) return
  shiftMs = seen
  writeFileSync(seenFile, String(shiftMs))
}

writeFileSync(seenFile, '0')
look()
setInterval(look, 50).unref()
