/**
 * Migrations as they lie in a folder: `0001_outbox.up.sql` and `0001_outbox.down.sql`.
 *
 * A migration that a release before it cannot work with says since when one
 * can, in a line `-- compatible from: 3`: the number of the newest migration
 * that the oldest such release brings. Without that line it is its own
 * predecessor, and so on down: every migration works while the previous release
 * still runs.
 */
import { readdir, readFile } from 'node:fs/promises'
import { InvalidOptionError } from '../errors.ts'

/** One migration. */
export interface Migration {
  readonly version: number
  /** `0001_outbox`. */
  readonly name: string
  readonly compatibleFrom: number
  readonly up: string
  /** For tests and development; `null` if it cannot be taken back. */
  readonly down: string | null
}

const COMPATIBLE_FROM = /^-- compatible from: (\d+)$/m

/** Where the library's own migrations are, from the sources and from the package alike. */
export const messagingMigrations = new URL('../../../migrations/messaging/', import.meta.url)

/** Reads the migrations in `folder` in their order. Throws {@link InvalidOptionError} if they are not numbered 1, 2, 3 and so on. */
export async function readMigrations(folder: URL): Promise<readonly Migration[]> {
  if (!(folder instanceof URL)) throw new InvalidOptionError('folder', folder, 'the URL of a folder')
  const base = folder.href.endsWith('/') ? folder : new URL(`${folder.href}/`)
  const files = new Set(await readdir(base))
  const names = [...files].filter((file) => file.endsWith('.up.sql')).sort()

  const migrations: Migration[] = []
  for (const file of names) {
    const name = file.slice(0, -'.up.sql'.length)
    const version = Number(/^(\d{4})_/.exec(name)?.[1])
    if (version !== migrations.length + 1) {
      throw new InvalidOptionError('migrations', name, `numbered ${migrations.length + 1} next, as 0001_name.up.sql`)
    }
    const up = await readFile(new URL(file, base), 'utf8')
    const down = `${name}.down.sql`
    migrations.push({
      version,
      name,
      compatibleFrom: Number(COMPATIBLE_FROM.exec(up)?.[1] ?? migrations.at(-1)?.compatibleFrom ?? 1),
      up,
      down: files.has(down) ? await readFile(new URL(down, base), 'utf8') : null,
    })
  }
  return migrations
}
