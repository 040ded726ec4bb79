import { readdir, readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'

const root = new URL('../../', import.meta.url)
const HIGHEST = 82

async function textOf(folder: string): Promise<string> {
  const entries = await readdir(new URL(folder, root), { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile() && /\.ts$/.test(entry.name))
  return (await Promise.all(files.map(({ parentPath, name }) => readFile(`${parentPath}/${name}`, 'utf8')))).join('\n')
}

test('each collected case is the title of a test, or a line of docs/known-limits.md', async () => {
  const limits = await readFile(new URL('docs/known-limits.md', root), 'utf8')
  const tests = `${await textOf('test/')}\n${await textOf('src/messaging/testing/')}`
  // A title stands in quotes, with nothing but other ids or words before it.
  const titled = new Set([...tests.matchAll(/['`][^'`\n]*['`]/g)].flatMap(([title]) => title.match(/PC-\d+/g) ?? []))
  const stated = new Set(limits.match(/PC-\d+/g))
  const all = Array.from({ length: HIGHEST }, (_, index) => `PC-${String(index + 1).padStart(2, '0')}`)

  expect(all.filter((id) => !titled.has(id) && !stated.has(id))).toEqual([])
  expect([...titled, ...stated].filter((id) => !all.includes(id))).toEqual([])
})
