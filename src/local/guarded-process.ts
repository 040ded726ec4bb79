/**
 * A child process that cannot outlive its parent, however the parent ends.
 *
 * A small shell watches the end of a pipe whose other end the parent holds, and
 * becomes the server's neighbour: when the pipe closes without a word, it asks
 * the server to stop and, after a grace, kills it. No code of ours has to run
 * for that, so SIGKILL of the parent is covered as well.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import type { Writable } from 'node:stream'
import { inheritedEnv } from './config.ts'

export interface GuardedOptions {
  /** The program and its arguments. */
  readonly command: readonly [string, ...string[]]
  /** The file that standard output and error are appended to; null: they are the parent's own. */
  readonly logFile: string | null
  /** What asks the program to end when its parent is gone. */
  readonly stopSignal: NodeJS.Signals
  /** Seconds between that and SIGKILL. */
  readonly orphanGraceSeconds: number
  readonly account?: { readonly uid: number; readonly gid: number } | undefined
  readonly cwd?: string
  /** Variables over the inherited ones. */
  readonly env?: Readonly<Record<string, string>>
}

export interface GuardedProcess {
  readonly pid: number
  /** Resolves once the process has ended, to how, as a phrase: `exit code 1`. */
  readonly ended: Promise<string>
  /** Sends a signal; false if the process has ended. */
  kill(signal: NodeJS.Signals): boolean
  /** Sends a signal to the process and all that it has started; false if it has ended. */
  killGroup(signal: NodeJS.Signals): boolean
}

// The watcher shares the server's process group, so the group's number cannot
// be given to a stranger while it watches. A line on the pipe releases it.
const script = `
signal=$1 grace=$2
shift 2
( (
  trap '' INT QUIT TERM HUP
  read -r released <&3 && exit
  kill -s "$signal" -- "-$$" || exit
  ticks=$((grace * 10))
  while [ "$ticks" -gt 0 ] && kill -0 "$$"; do sleep 0.1; ticks=$((ticks - 1)); done
  kill -s KILL -- "-$$"
) >/dev/null 2>&1 & )
exec "$@" 3<&-
`

/** Starts a program under guard. Resolves when it has a process id; that says nothing yet of its health. */
export function startGuarded(options: GuardedOptions): GuardedProcess {
  const { command, logFile, stopSignal, orphanGraceSeconds, account, cwd, env } = options
  const log = logFile === null ? null : openSync(logFile, 'a', 0o640)
  const signal = stopSignal.replace(/^SIG/, '')
  const child = spawn('/bin/sh', ['-c', script, 'sh', signal, String(orphanGraceSeconds), ...command], {
    stdio: ['ignore', log ?? 'inherit', log ?? 'inherit', 'pipe'],
    // A group of its own: Ctrl-C in the terminal goes to the owner, who decides the order.
    detached: true,
    env: { ...inheritedEnv(), ...env },
    ...(cwd === undefined ? {} : { cwd }),
    ...account,
  })
  if (log !== null) closeSync(log)
  const { pid } = child
  if (pid === undefined) throw new Error(`Could not run ${command[0]}`)
  return {
    pid,
    ended: endOf(child),
    kill: (wanted) => child.kill(wanted),
    // Afterwards the group's number may be a stranger's. The watcher, of the same group, hears no signal but KILL.
    killGroup: (wanted) => child.exitCode === null && child.signalCode === null && process.kill(-pid, wanted),
  }
}

async function endOf(child: ChildProcess): Promise<string> {
  const lifeline = child.stdio[3] as Writable
  lifeline.on('error', () => {})
  const { promise, resolve } = Promise.withResolvers<string>()
  child.once('error', (error) => resolve(error.message))
  child.once('exit', (code, signal) => resolve(code === null ? `signal ${signal}` : `exit code ${code}`))
  const how = await promise
  // The word is all that the watcher needs. Until it has its turn to read it, which is long on a busy machine, its end
  // of the pipe is open, and ours would keep this process.
  lifeline.end('\n', () => lifeline.destroy())
  return how
}
