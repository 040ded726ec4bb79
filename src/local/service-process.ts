/** The service as a child of `npm start`: its own log on the terminal, drained before the servers that it uses. */
import { rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { startGuarded } from './guarded-process.ts'
import { StackError } from './stack-error.ts'

/** Seconds that the service has to drain: its own grace is 10. */
const GRACE_SECONDS = 15

export interface ServiceOptions {
  readonly command: readonly [string, ...string[]]
  readonly env: Readonly<Record<string, string>>
  /** Holds its process id while it runs; `null` keeps none. */
  readonly pidFile: string | null
}

export interface ServiceProcess extends AsyncDisposable {
  /** Rejects when it ends and nobody asked it to; never resolves. */
  readonly failed: Promise<never>
  /** Resolves to true once `url` answers with success, to false when the process has ended before. */
  untilReady(url: string): Promise<boolean>
  kill(signal: NodeJS.Signals): void
}

/** Starts it with this process's standard output and error. */
export async function startService({ command, env, pidFile }: ServiceOptions): Promise<ServiceProcess> {
  const running = startGuarded({
    command,
    env,
    logFile: null,
    stopSignal: 'SIGTERM',
    orphanGraceSeconds: GRACE_SECONDS,
  })
  if (pidFile !== null) await writeFile(pidFile, `${running.pid}\n`)
  let expectedToEnd = false
  let ended = false
  const failed = running.ended.then(async (how) => {
    ended = true
    if (pidFile !== null) await rm(pidFile, { force: true })
    if (!expectedToEnd) throw new StackError(`The service ended by itself (${how}); its log above says why.`)
    return await new Promise<never>(() => {})
  })
  failed.catch(() => {})
  return {
    failed,
    async untilReady(url) {
      while (!ended && !(await answers(url))) await sleep(100)
      return !ended
    },
    kill(signal) {
      expectedToEnd = true
      running.kill(signal)
    },
    async [Symbol.asyncDispose]() {
      expectedToEnd = true
      running.kill('SIGTERM')
      const late = setTimeout(() => running.kill('SIGKILL'), GRACE_SECONDS * 1_000)
      await running.ended
      clearTimeout(late)
    },
  }
}

async function answers(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
    ({ ok }) => ok,
    () => false,
  )
}
