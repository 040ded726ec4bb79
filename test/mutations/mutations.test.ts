/** Holds the table of mutations to the code; `npm run test:mutations` runs them, which takes minutes. */
import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { MUTATIONS } from './all.ts'

const read = (path: string) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8')

test('each mutation has a name of its own, a test file, and texts that stand in the code exactly once', async () => {
  const problems: string[] = []
  const names = new Set<string>()
  for (const { name, edits, test: file } of MUTATIONS) {
    if (names.has(name)) problems.push(`${name}: the name is taken`)
    names.add(name)
    await read(file).catch(() => problems.push(`${name}: there is no ${file}`))
    for (const { file: source, find } of edits) {
      const count = (await read(source)).split(find).length - 1
      if (count !== 1) problems.push(`${name}: ${source} has it ${count} times: ${find}`)
    }
  }

  expect(problems).toEqual([])
})
