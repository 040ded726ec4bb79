import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { startGuarded } from '../../src/local/guarded-process.ts'
import { isRunning } from '../../src/local/leftover.ts'
import { runProgram, untilGone } from './processes.ts'

async function parentOf(dir: string, ...command: string[]) {
  const parent = runProgram('test/local/guarded-parent.ts', [join(dir, 'log'), ...command])
  const pid = Number(/pid (\d+)\./.exec(await parent.says('.'))?.[1])
  return { parent, pid }
}

async function temporaryDir() {
  const path = await mkdtemp(join(tmpdir(), 'guarded-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) }
}

test('a guarded process ends when its parent is killed', async () => {
  await using dir = await temporaryDir()
  const { parent, pid } = await parentOf(dir.path, 'sleep', '98761')
  expect(await isRunning(pid, 'sleep')).toBe(true)

  parent.kill('SIGKILL')

  await untilGone(pid, 'sleep')
  expect(await parent.ended).toBe('SIGKILL')
})

test('a guarded process that ignores the request to end is killed after its grace', async () => {
  await using dir = await temporaryDir()
  const stubborn = 'trap "" TERM; echo ready; while true; do sleep 98762; done'
  const { parent, pid } = await parentOf(dir.path, 'sh', '-c', stubborn)
  while (!(await readFile(join(dir.path, 'log'), 'utf8')).includes('ready'));

  parent.kill('SIGKILL')

  await untilGone(pid, 'sleep 98762')
  expect(await isRunning(pid, 'sleep 98762')).toBe(false)
})

test('a guarded process that ends by itself says how, and leaves no watcher', async () => {
  await using dir = await temporaryDir()

  const ended = startGuarded({
    command: ['sh', '-c', 'exit 3'],
    logFile: join(dir.path, 'log'),
    stopSignal: 'SIGTERM',
    orphanGraceSeconds: 60,
  })

  expect(await ended.ended).toBe('exit code 3')
  // The watcher is the last of the process group that the program led.
  await expect(groupEnded(ended.pid)).resolves.toBeUndefined()
})

async function groupEnded(group: number): Promise<void> {
  for (;;) {
    try {
      process.kill(-group, 0)
      await new Promise(setImmediate)
    } catch {
      return
    }
  }
}
