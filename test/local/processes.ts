/** Programs that tests start in processes of their own, and processes that no event tells of. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isRunning } from '../../src/local/leftover.ts'
import { eventually } from '../../src/messaging/testing/index.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))

export interface Program extends AsyncDisposable {
  readonly pid: number
  /** All output so far. */
  output(): string
  /** Resolves to the output once it holds `text`; rejects when the program ends without. */
  says(text: string): Promise<string>
  kill(signal: NodeJS.Signals): void
  /** Resolves to the exit code, or to the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals | null>
}

/** Runs a file of this repository in Node. It is killed at the end of the scope. */
export function runProgram(
  file: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Program {
  return runCommand([process.execPath, join(root, file), ...args], env)
}

/** Runs a command in the repository's folder. It is killed at the end of the scope. */
export function runCommand(
  [command, ...args]: readonly [string, ...string[]],
  env: Readonly<Record<string, string>>,
): Program {
  const child = spawn(command, args, { cwd: root, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (output += text))
  const ended = endOf(child)
  return {
    pid: child.pid ?? 0,
    output: () => output,
    async says(text) {
      const over = new AbortController()
      void ended.then(() => over.abort())
      while (!output.includes(text)) {
        if (over.signal.aborted) throw new Error(`Ended without saying '${text}':\n${output}`)
        await Promise.race([once(child.stdout, 'data'), once(child.stderr, 'data'), ended])
      }
      return output
    },
    kill: (signal) => child.kill(signal),
    ended,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await ended
    },
  }
}

async function endOf(child: ChildProcess): Promise<number | NodeJS.Signals | null> {
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
  return code ?? signal
}

/** Resolves once process `pid`, told by `text` in its command line, has ended. Others' children have no event for that. */
export async function untilGone(pid: number, text: string): Promise<void> {
  await eventually(`the end of process ${pid}`, async () => !(await isRunning(pid, text)))
}

/** Resolves once no process of this group is left. */
export async function untilGroupGone(group: number): Promise<void> {
  await eventually(`the end of group ${group}`, () => {
    try {
      return !process.kill(-group, 0)
    } catch {
      return true
    }
  })
}
