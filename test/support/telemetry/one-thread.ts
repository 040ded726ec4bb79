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
  const ended = once(child, 'exit')

  /** Its next message; rejects when it ends without. */
  async function answer(): Promise<unknown> {
    const over = new AbortController()
    const ending = ended.then(([code, signal]) => {
      throw new Error(`The process ended with ${code ?? signal} and without an answer`)
    })
    try {
      const [message] = await Promise.race([once(child, 'message', { signal: over.signal }), ending])
      return message
    } finally {
      over.abort()
    }
  }

  async function tell(command: Command): Promise<void> {
    child.send(command)
    await answer()
    if (command === 'stop') await ended
  }
  const { url } = (await answer()) as { url: string }
  return {
    url,
    tell,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) await tell('stop')
    },
  }
}
