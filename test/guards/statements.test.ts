/** Faults that a statement can have and still be well-formed. */
import { readdir, readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'

const src = new URL('../../src/', import.meta.url)

/** A column that is read as another type under its own name, and then sorted by that name, is sorted as the other type. */
function sortedByItsCast(statement: string): readonly string[] {
  return [...statement.matchAll(/order by (\w+)\b(?!\.)/g)].flatMap(([, column = '']) =>
    new RegExp(`[\\s,]${column}::\\w+\\s*(?:,|from\\b)`).test(statement) ? [column] : [],
  )
}

test('no statement sorts by a column that it has cast', async () => {
  const files = (await readdir(src, { recursive: true })).filter((file) => file.endsWith('.ts'))
  const statements = await Promise.all(
    files.map(async (file) =>
      [...(await readFile(new URL(file, src), 'utf8')).matchAll(/`[^`]*`/g)].map(([statement]) => ({
        file,
        statement,
      })),
    ),
  )
  const sorted = statements.flat().filter(({ statement }) => statement.includes('order by'))

  expect(sorted.length).toBeGreaterThan(10)
  expect(
    sorted.flatMap(({ file, statement }) => sortedByItsCast(statement).map((column) => `${file}: ${column}`)),
  ).toEqual([])
  expect(sortedByItsCast('select seq::text, id from t order by seq')).toEqual(['seq'])
})
