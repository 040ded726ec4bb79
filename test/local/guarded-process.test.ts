import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from '@jest/globals'
import { startGuarded } from '../../src/local/guarded-process.ts'
import { commandLine, isRunning } from '../../src/local/leftover.ts'
import { eventually } from '../../src/messaging/testing/index.ts'
import { runProgram, untilGone, untilGroupGone } from './processes.ts'

const run = promisify(execFile)

async function parentOf(dir: string, ...command: string[]) {
  const parent = runProgram('test/local/guarded-parent.ts', [join(dir, 'log'), ...command])
  const pid = Number(/pid (\d+)\./.exec(await parent.says('.'))?.[1])
  return { parent, pid, [Symbol.asyncDispose]: () => parent[Symbol.asyncDispose]() }
}

async function temporaryDir() {
  const path = await mkdtemp(join(tmpdir(), 'guarded-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

test('a guarded process ends when its parent is killed', async () => {
  await using dir = await temporaryDir()
  await using started = await parentOf(dir.path, 'sleep', '98761')
  const { parent, pid } = started
  // While a process becomes another program, it has no command line for a moment.
  await eventually('it runs', async () => (await commandLine(pid)).startsWith('sleep 98761'))

  parent.kill('SIGKILL')

  await untilGone(pid, 'sleep')
  expect(await parent.ended).toBe('SIGKILL')
})

test('a guarded process that ignores the request to end is killed after its grace', async () => {
  await using dir = await temporaryDir()
  const stubborn = 'trap "" TERM; echo ready; while true; do sleep 98762; done'
  await using started = await parentOf(dir.path, 'sh', '-c', stubborn)
  const { parent, pid } = started
  await eventually('it ignores it', async () => (await readFile(join(dir.path, 'log'), 'utf8')).includes('ready'))

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
  await untilGroupGone(ended.pid)
})

test('a guarded process that has ended keeps nobody, though its watcher has had no turn to hear of it', async () => {
  await using dir = await temporaryDir()
  await using started = await parentOf(dir.path, 'sleep', '98770')
  const { parent, pid } = started
  const watcher = await watcherOf(pid)
  process.kill(watcher, 'SIGSTOP')
  using _watcher = { [Symbol.dispose]: () => void process.kill(watcher, 'SIGCONT') }

  process.kill(pid, 'SIGKILL')

  expect(await parent.ended).toBe(0)
})

test('ending the group of a guarded process ends what it has started as well', async () => {
  await using dir = await temporaryDir()
  const logFile = join(dir.path, 'log')
  const guarded = startGuarded({
    command: ['sh', '-c', 'sleep 98769 & echo ready; wait'],
    logFile,
    stopSignal: 'SIGTERM',
    orphanGraceSeconds: 60,
  })
  using _guarded = { [Symbol.dispose]: () => void guarded.killGroup('SIGKILL') }
  await eventually('it has a child', async () => (await readFile(logFile, 'utf8')).includes('ready'))

  expect(guarded.killGroup('SIGTERM')).toBe(true)

  expect(await guarded.ended).toBe('signal SIGTERM')
  await untilGroupGone(guarded.pid)
  expect(guarded.killGroup('SIGTERM')).toBe(false)
})

/** The watcher of a guarded `sleep`: the other process of its group, once both are what they will be. */
async function watcherOf(group: number): Promise<number> {
  let watcher = 0
  await eventually('the watcher', async () => {
    const { stdout } = await run('ps', ['-eo', 'pid=,pgid=,comm='])
    const members = stdout.split('\n').flatMap((line) => {
      const [pid, pgid, command] = line.trim().split(/ +/)
      return Number(pgid) === group ? [{ pid: Number(pid), command }] : []
    })
    if (!members.some(({ pid, command }) => pid === group && command === 'sleep')) return false
    watcher = members.find(({ pid }) => pid !== group)?.pid ?? 0
    return watcher > 0
  })
  return watcher
}
