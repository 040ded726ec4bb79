/**
 * The right to a data folder: one stack at a time.
 *
 * The right is a lock that the operating system holds for this process, by way
 * of SQLite's exclusive transaction, so it ends with the process however that
 * ends: there is no lock file to go stale.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { StackError } from './stack-error.ts'

/** Takes the folder for this process, creating it. Throws {@link StackError} naming the process that has it. */
export async function claimDataDir(dir: string): Promise<Disposable> {
  try {
    await mkdir(dir, { recursive: true })
  } catch (cause) {
    throw new StackError(
      `DATA_DIR ${dir} cannot be created (${(cause as Error).message}). Set DATA_DIR to another folder.`,
      { cause },
    )
  }
  const owner = join(dir, 'owner')
  const lock = new DatabaseSync(join(dir, 'lock'), { timeout: 0 })
  try {
    lock.exec('begin exclusive')
  } catch (cause) {
    lock.close()
    if ((cause as { errcode?: number }).errcode !== SQLITE_BUSY) throw cause
    const pid = (await readFile(owner, 'utf8').catch(() => '')).trim()
    throw new StackError(
      `Another start${pid && ` (process ${pid})`} uses ${dir}. Stop that one, or give this one a folder and ports: DATA_DIR=.data2 PORT=4100 ADMIN_PORT=4101 npm start`,
      { cause },
    )
  }
  await writeFile(owner, `${process.pid}\n`)
  return {
    [Symbol.dispose]() {
      lock.close()
    },
  }
}

const SQLITE_BUSY = 5
