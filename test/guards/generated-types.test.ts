import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'

const root = fileURLToPath(new URL('../../', import.meta.url))

test('the types in src/graphql/generated.ts are those of schema.graphql', async () => {
  const check = promisify(execFile)(
    process.execPath,
    ['node_modules/@graphql-codegen/cli/esm/bin.js', '--config', 'codegen.ts', '--check'],
    { cwd: root },
  )

  await expect(check).resolves.toBeDefined()
})
