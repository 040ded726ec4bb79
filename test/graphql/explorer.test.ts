import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { buildSchema, parse, validate } from 'graphql'
import { explorerPage } from '../../src/graphql/explorer.ts'

test('each query that the page offers is one that the API understands', async () => {
  const schema = buildSchema(await readFile('schema.graphql', 'utf8'))
  const offered = /const examples = (.*)/.exec(explorerPage(null))?.[1] ?? '{}'
  const queries = Object.entries(JSON.parse(offered) as Record<string, string>)

  expect(queries.length).toBeGreaterThanOrEqual(3)
  expect(
    queries.flatMap(([name, query]) => validate(schema, parse(query)).map(({ message }) => [name, message])),
  ).toEqual([])
})

test('the page leads to readiness and metrics where it is told of them, and is silent of them elsewhere', () => {
  expect(explorerPage('http://127.0.0.1:4001')).toMatch(
    /http:\/\/127\.0\.0\.1:4001\/readyz.*http:\/\/127\.0\.0\.1:4001\/metrics/s,
  )
  expect(explorerPage(null)).not.toMatch(/readyz|metrics/)
})
