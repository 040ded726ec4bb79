/**
 * The package as npm would publish it, packed into a folder of its own that is
 * removed again: whether its types resolve, and whether each page in it links
 * only to files that are in it too.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, posix } from 'node:path'

interface Packed {
  readonly filename: string
  readonly files: readonly { readonly path: string }[]
}

const folder = mkdtempSync(join(tmpdir(), 'graphql-outbox-'))
try {
  const answer = execFileSync('npm', ['pack', '--json', '--pack-destination', folder], { encoding: 'utf8' })
  const [packed]: Packed[] = JSON.parse(answer)
  if (!packed) throw new Error('npm pack named no package')
  const dead = deadLinks(packed.files.map(({ path }) => path))
  for (const link of dead) console.error(`In the package, ${link} leads nowhere`)
  const types = spawnSync('attw', [join(folder, packed.filename), '--profile', 'esm-only', '--no-color'], {
    stdio: 'inherit',
  })
  if (types.error) throw types.error
  process.exitCode = dead.length > 0 ? 1 : (types.status ?? 1)
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** Links of the packed pages to files that are not packed. A folder is there when something in it is. */
function deadLinks(files: readonly string[]): readonly string[] {
  return files
    .filter((file) => file.endsWith('.md'))
    .flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)].flatMap(([, link = '']) => {
        const target = posix.join(posix.dirname(page), link)
        return files.some((file) => file === target || file.startsWith(`${target}/`)) ? [] : [`${link} in ${page}`]
      }),
    )
}
