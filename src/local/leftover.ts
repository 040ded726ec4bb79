/**
 * Servers that an earlier start left running. They are ended only when proven
 * to be this stack's: the process of the pid file has this stack's folder in its
 * command line. A number that now belongs to another program is left alone.
 */
import { execFile } from 'node:child_process'
import { readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)

export interface LeftoverOptions {
  readonly name: string
  readonly pidFile: string
  /** What only a server of this folder has in its command line. */
  readonly commandHolds: string
  readonly stopSignal: NodeJS.Signals
}

/** Ends the server of `pidFile` if it still runs; resolves to whether it did. Throws {@link StackError} when it will not end. */
export async function endLeftover({ name, pidFile, commandHolds, stopSignal }: LeftoverOptions): Promise<boolean> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''))
  const found = pid > 0 && (await isRunning(pid, commandHolds))
  if (found) await end(pid, { name, commandHolds, stopSignal })
  await rm(pidFile, { force: true })
  return found
}

async function end(pid: number, { name, commandHolds, stopSignal }: Omit<LeftoverOptions, 'pidFile'>): Promise<void> {
  for (const [signal, seconds] of [
    [stopSignal, 15],
    ['SIGKILL', 5],
  ] as const) {
    signalIfThere(pid, 'SIGCONT')
    signalIfThere(pid, signal)
    for (let ticks = seconds * 10; ticks > 0; ticks--) {
      if (!(await isRunning(pid, commandHolds))) return
      await sleep(100)
    }
  }
  throw new StackError(
    `${name} of an earlier start still runs as process ${pid} and does not end. End it: kill -9 ${pid}`,
  )
}

function signalIfThere(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Whether process `pid` runs and its command line holds `text`. A process that ended and was not yet reaped does not run. */
export async function isRunning(pid: number, text: string): Promise<boolean> {
  return (await commandLine(pid)).includes(text)
}

/** The command line of process `pid`; empty when there is none. */
export async function commandLine(pid: number): Promise<string> {
  if (process.platform === 'linux') {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).replaceAll('\0', ' ')
  }
  return await run('ps', ['-ww', '-o', 'args=', '-p', String(pid)]).then(
    ({ stdout }) => stdout,
    () => '',
  )
}
