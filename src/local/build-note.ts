/**
 * A file that says, for as long as Jaeger is being built, that it is: other
 * programs can then tell a trace that is not there yet from one that never will be.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const file = (dir: string) => join(dir, 'building')

/** Says in `dir` that this process builds Jaeger, until it is disposed of. */
export async function noteBuild(dir: string): Promise<AsyncDisposable> {
  await mkdir(dir, { recursive: true })
  await writeFile(file(dir), `${JSON.stringify({ pid: process.pid, since: Date.now() })}\n`)
  return { [Symbol.asyncDispose]: () => rm(file(dir), { force: true }) }
}

/** Milliseconds for which Jaeger is being built so far, by whoever has `dir`; `null` when nobody builds it. Never throws. */
export async function buildUnderWay(dir: string): Promise<number | null> {
  try {
    const { pid, since } = JSON.parse(await readFile(file(dir), 'utf8')) as { pid: number; since: number }
    // The note of a process that was killed stays behind.
    process.kill(pid, 0)
    return Math.max(0, Date.now() - since)
  } catch {
    return null
  }
}

/** `1 min 20 s`. */
export function spoken(ms: number): string {
  const seconds = Math.round(ms / 1_000)
  const rest = `${seconds % 60} s`
  return seconds < 60 ? rest : `${Math.floor(seconds / 60)} min ${rest}`
}
