/** The time of day of processes under test, as a test sets it: see `shifted-clock.ts`, which they load. */
import { readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { eventually } from '../../src/messaging/testing/index.ts'

export interface JumpingClock {
  /** What the processes are started with. */
  readonly env: Readonly<Record<string, string>>
  /** Sets their time of day off by `ms`; resolves once all of their threads have jumped. */
  jumpTo(ms: number): Promise<void>
}

/** A clock that is right at first. `file` is written, and others beside it. */
export async function createJumpingClock(file: string): Promise<JumpingClock> {
  const preload = fileURLToPath(new URL('./shifted-clock.ts', import.meta.url))
  await writeFile(file, '0')
  return {
    env: { TEST_CLOCK_FILE: file, NODE_OPTIONS: `--import ${preload}` },
    async jumpTo(ms) {
      // At once and whole: a thread that looks meanwhile must not find half a number.
      await writeFile(join(dirname(file), 'next'), String(ms))
      await rename(join(dirname(file), 'next'), file)
      await eventually('all threads have jumped', async () => {
        const seen = await seenBeside(file)
        return seen.length > 0 && seen.every((shift) => shift === String(ms))
      })
    },
  }
}

async function seenBeside(file: string): Promise<readonly string[]> {
  const names = (await readdir(dirname(file))).filter((name) => name.startsWith(`${basename(file)}.`))
  return await Promise.all(names.map((name) => readFile(join(dirname(file), name), 'utf8')))
}
