/**
 * Where a server that runs as another account keeps its files: in the folder
 * that was asked for, or, where that is closed to the account (a home of mode
 * 0700), in one below the system's data folder that belongs to it.
 */
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { exists } from './exists.ts'
import { systemFolder } from './postgres-binaries.ts'

/** The folder for `dir`, the same each time; it exists. `account` undefined: this process's own, for which it is `dir` itself. */
export async function reachableDir(dir: string, account: { readonly uid: number } | undefined): Promise<string> {
  await mkdir(dir, { recursive: true })
  const real = await realpath(dir)
  if (!account || (await canReach(real, account.uid))) return real
  const places = systemFolder('data')
  await removeLeft(places)
  const place = join(places, createHash('sha256').update(real).digest('hex').slice(0, 16))
  await mkdir(place, { recursive: true, mode: 0o755 })
  await writeFile(join(place, 'origin'), real)
  return place
}

/** Whether an account may pass each folder of `path`, by its being everybody's or its own. */
async function canReach(path: string, uid: number): Promise<boolean> {
  const { mode, uid: owner } = await stat(path)
  const passes = (mode & 0o001) !== 0 || (owner === uid && (mode & 0o100) !== 0)
  return passes && (path === '/' || (await canReach(dirname(path), uid)))
}

/** Removes what stood for a temporary folder that is gone. Others stay: their disk may only be absent. */
async function removeLeft(places: string): Promise<void> {
  const temporary = await realpath(tmpdir())
  for (const name of await readdir(places).catch(() => [])) {
    const origin = await readFile(join(places, name, 'origin'), 'utf8').catch(() => '')
    const left = origin.startsWith(`${temporary}/`) && !(await exists(origin))
    if (left) await rm(join(places, name), { recursive: true, force: true })
  }
}
