/** The service as a child of `npm start`: its own log on the terminal, drained before the servers that it uses. */
import { rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { startGuarded } from './guarded-process.ts'
import { StackError } from './stack-error.ts'

/** Seconds that the service has to drain: its own grace is 10. */
const GRACE_SECONDS = 15

export interface ServiceOptions {
  /** For messages: `The service`. */
  readonly name: string
  readonly command: readonly [string, ...string[]]
  readonly env: Readonly<Record<string, string>>
  /** Holds its process id while it runs; `null` keeps none. */
  readonly pidFile: string | null
}

export interface ServiceProcess extends AsyncDisposable {
  /** Resolves when it ends by itself with exit code 0; never rejects. */
  readonly finished: Promise<void>
  /** Rejects when it ends in any other way and nobody asked it to; never resolves. */
  readonly failed: Promise<never>
  /** Resolves to true once `url` answers with success, to false when the process has ended before. */
  untilReady(url: string): Promise<boolean>
  kill(signal: NodeJS.Signals): void
}

/** Starts it with this process's standard output and error. */
export async function startService({ name, command, env, pidFile }: ServiceOptions): Promise<ServiceProcess> {
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
  const finished = Promise.withResolvers<void>()
  const failed = Promise.withResolvers<never>()
  failed.promise.catch(() => {})
  void running.ended.then(async (how) => {
    ended = true
    if (pidFile !== null) await rm(pidFile, { force: true })
    if (expectedToEnd) return
    if (how === 'exit code 0') finished.resolve()
    else failed.reject(new StackError(`${name} ${reasonOf(how)}`))
  })
  return {
    finished: finished.promise,
    failed: failed.promise,
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

/** A process that is killed has no time to say why. */
function reasonOf(how: string): string {
  if (how !== 'signal SIGKILL') return `ended by itself (${how}); its log above says why.`
  return 'was killed from outside (signal SIGKILL): by somebody, or by the system for want of memory.'
}

async function answers(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
    ({ ok }) => ok,
    () => false,
  )
}
