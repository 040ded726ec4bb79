/** A process with all roles in its main thread, for a test. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Command } from './one-thread-process.ts'

const preload = new URL('../../../src/service/telemetry.ts', import.meta.url).href
const script = fileURLToPath(new URL('./one-thread-process.ts', import.meta.url))

/** A running process. */
export interface OneThread extends AsyncDisposable {
  /** Of the API. */
  readonly url: string
  /** Resolves once it is done; `stop` once the process has ended. */
  tell(command: Command): Promise<void>
}

/** Starts it with nothing of this process's environment but `env`. Relay and consumers wait to be told. */
export async function startOneThread(env: Readonly<Record<string, string>>): Promise<OneThread> {
  const child = spawn(process.execPath, ['--import', preload, script], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const [{ url }] = (await once(child, 'message')) as [{ url: string }]

  async function tell(command: Command): Promise<void> {
    child.send(command)
    await once(child, 'message')
    if (command === 'stop' && child.exitCode === null) await once(child, 'exit')
  }
  return {
    url,
    tell,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null) await tell('stop')
    },
  }
}
