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

/** Takes the folder for this process, creating it. Throws {@link StackError} naming the process that has it, or why it cannot be used. */
export async function claimDataDir(dir: string): Promise<Disposable> {
  const claim = await claimIfFree(dir)
  if (claim === null) throw await inUse(dir, join(dir, 'owner'))
  return claim
}

/** Takes the folder if nobody has it: `null` when another start does. Throws {@link StackError} when it cannot be used at all. */
export async function claimIfFree(dir: string): Promise<Disposable | null> {
  const owner = join(dir, 'owner')
  try {
    await mkdir(dir, { recursive: true })
    const lock = new DatabaseSync(join(dir, 'lock'), { timeout: 0 })
    lock.exec('begin exclusive')
    await writeFile(owner, `${process.pid}\n`)
    return { [Symbol.dispose]: () => lock.close() }
  } catch (cause) {
    if ((cause as { errcode?: number }).errcode === SQLITE_BUSY) return null
    throw new StackError(`${dir} cannot be used: ${(cause as Error).message}. Set DATA_DIR to another folder.`, {
      cause,
    })
  }
}

async function inUse(dir: string, owner: string): Promise<StackError> {
  const pid = (await readFile(owner, 'utf8').catch(() => '')).trim()
  return new StackError(
    `Another start${pid && ` (process ${pid})`} uses ${dir}. Stop that one${pid && `: kill ${pid}`}, or give this one a folder and ports: DATA_DIR=.data2 PORT=4100 ADMIN_PORT=4101 npm start`,
  )
}

const SQLITE_BUSY = 5
