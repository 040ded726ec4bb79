/** A Postgres whose own clock a test can set, by libfaketime: for `npm run test:long`, where that is installed. */
import { existsSync } from 'node:fs'
import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** Where Debian has it (`apt-get install libfaketime`). */
const LIBRARIES = ['x86_64', 'aarch64'].map((machine) => `/usr/lib/${machine}-linux-gnu/faketime/libfaketime.so.1`)

/** The library; `null` where it is not installed. */
export const faketimeLibrary: string | null = LIBRARIES.find((path) => existsSync(path)) ?? null

export interface DatabaseClock {
  /** What Postgres is started with. */
  readonly env: Readonly<Record<string, string>>
  /** Sets its time of day off by `ms`, from its next look on; the monotonic clock is not touched. */
  jumpTo(ms: number): Promise<void>
}

/** A clock that is right at first, kept in `dir`, which Postgres's account can read. */
export async function createDatabaseClock(dir: string): Promise<DatabaseClock> {
  if (faketimeLibrary === null) throw new Error('libfaketime is not installed')
  const file = join(dir, 'database-clock')
  const jumpTo = async (ms: number) => {
    await writeFile(`${file}.next`, `${ms < 0 ? '-' : '+'}${Math.abs(ms) / 1_000}\n`)
    await rename(`${file}.next`, file)
  }
  await jumpTo(0)
  return {
    env: {
      LD_PRELOAD: faketimeLibrary,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    },
    jumpTo,
  }
}
