import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { endLeftover } from '../../src/local/leftover.ts'

async function leftProcess(seconds: string) {
  const dir = await mkdtemp(join(tmpdir(), 'leftover-'))
  const child = spawn('sleep', [seconds])
  await once(child, 'spawn')
  const pidFile = join(dir, 'pid')
  await writeFile(pidFile, String(child.pid))
  const ended = once(child, 'exit')
  const dispose = async () => {
    child.kill('SIGKILL')
    await ended
    await rm(dir, { recursive: true })
  }
  return { pidFile, child, ended, [Symbol.asyncDispose]: dispose }
}

test('a server that an earlier start left behind is ended', async () => {
  await using left = await leftProcess('98763')

  const found = await endLeftover({
    name: 'It',
    pidFile: left.pidFile,
    commandHolds: 'sleep 98763',
    stopSignal: 'SIGTERM',
  })

  expect(found).toBe(true)
  expect(await left.ended).toEqual([null, 'SIGTERM'])
})

test('a process that got the number of a server that is gone is left alone', async () => {
  await using stranger = await leftProcess('98764')

  const found = await endLeftover({
    name: 'It',
    pidFile: stranger.pidFile,
    commandHolds: 'postgres -D /x ',
    stopSignal: 'SIGTERM',
  })

  expect(found).toBe(false)
  expect(stranger.child.exitCode ?? stranger.child.signalCode).toBeNull()
  await expect(readFile(stranger.pidFile)).rejects.toThrow('ENOENT')
})

test('a stopped server that an earlier start left behind is ended as well', async () => {
  await using left = await leftProcess('98765')
  left.child.kill('SIGSTOP')

  await endLeftover({ name: 'It', pidFile: left.pidFile, commandHolds: 'sleep 98765', stopSignal: 'SIGTERM' })

  expect(await left.ended).toEqual([null, 'SIGTERM'])
})
