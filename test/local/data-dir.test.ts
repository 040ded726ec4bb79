import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { claimDataDir } from '../../src/local/data-dir.ts'
import { runProgram } from './processes.ts'

async function temporaryDir() {
  const path = await mkdtemp(join(tmpdir(), 'data-dir-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) }
}

test('a data folder has one owner, whom the refusal names', async () => {
  await using dir = await temporaryDir()
  using _claim = await claimDataDir(dir.path)

  await expect(claimDataDir(dir.path)).rejects.toThrow(`Another start (process ${process.pid}) uses ${dir.path}`)
})

test('a data folder whose owner was killed is free', async () => {
  await using dir = await temporaryDir()
  await using owner = runProgram('test/local/data-dir-owner.ts', [dir.path])
  await owner.says('claimed')
  await expect(claimDataDir(dir.path)).rejects.toThrow(`process ${owner.pid}`)

  owner.kill('SIGKILL')
  await owner.ended

  using claim = await claimDataDir(dir.path)
  expect(claim).toBeDefined()
})

test('a data folder that cannot be made is an error that names the variable', async () => {
  await using dir = await temporaryDir()
  await writeFile(join(dir.path, 'file'), '')

  await expect(claimDataDir(join(dir.path, 'file', 'data'))).rejects.toThrow(/ENOTDIR.*Set DATA_DIR to another folder/)
})
