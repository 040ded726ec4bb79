/**
 * One server process with an identity: started, proven to be the one that
 * answers, stopped, killed and started again on the same data and port.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { type GuardedProcess, startGuarded } from './guarded-process.ts'
import { StackError } from './stack-error.ts'

export interface OwnedServerOptions {
  /** For messages: `Postgres`, `Kafka node 1`. */
  readonly name: string
  readonly command: readonly [string, ...string[]]
  readonly account?: { readonly uid: number; readonly gid: number } | undefined
  /** The folder that it runs in; default this process's. */
  readonly cwd?: string
  /** Variables over the inherited ones. */
  readonly env?: Readonly<Record<string, string>>
  readonly logFile: string
  /** The file whose last lines are quoted when it fails; default `logFile`. */
  readonly errorLogFile?: string
  /** Holds the process id while it runs, so that a later start finds what an earlier one left. */
  readonly pidFile: string
  readonly stopSignal: NodeJS.Signals
  /** Seconds that it has to stop by itself before SIGKILL, also when its owner was killed. */
  readonly graceSeconds: number
  /**
   * Asks whoever answers at the server's address whether it is this server.
   * Resolves to true when it is and can be used, to false while nobody answers;
   * throws {@link StackError} when somebody else does.
   */
  readonly answers: () => Promise<boolean>
  /** Called before each `start`: makes the data where there are none, as after the loss of a disk. */
  readonly prepare?: () => Promise<void>
  /** Milliseconds until it must answer. */
  readonly startTimeoutMs: number
}

export class OwnedServer implements AsyncDisposable {
  readonly name: string
  readonly logFile: string
  /** Rejects when the process ends and nobody asked it to; never resolves. */
  readonly failed: Promise<never>
  readonly #fail: (error: StackError) => void
  readonly #options: OwnedServerOptions
  #running: GuardedProcess | null = null
  #expectedToEnd = false

  constructor(options: OwnedServerOptions) {
    const { promise, reject } = Promise.withResolvers<never>()
    promise.catch(() => {})
    this.failed = promise
    this.#fail = reject
    this.#options = options
    this.name = options.name
    this.logFile = options.errorLogFile ?? options.logFile
  }

  /** The process id, or null while it does not run. */
  get pid(): number | null {
    return this.#running?.pid ?? null
  }

  /** Starts the process and resolves once it is proven to answer. Throws {@link StackError} with the end of its log. */
  async start(): Promise<void> {
    if (this.#running) return
    await this.#options.prepare?.()
    this.launch()
    await this.ready()
  }

  /** Starts the process without waiting for its answer, for servers that need each other to be ready. */
  launch(): void {
    const { command, account, cwd, env, logFile, pidFile, stopSignal, graceSeconds } = this.#options
    this.#expectedToEnd = false
    const running = startGuarded({
      command,
      account,
      logFile,
      stopSignal,
      orphanGraceSeconds: graceSeconds,
      ...(cwd === undefined ? {} : { cwd }),
      ...(env === undefined ? {} : { env }),
    })
    this.#running = running
    writeFileSync(pidFile, `${running.pid}\n`)
    void running.ended.then((how) => {
      if (this.#running === running) this.#running = null
      rmSync(pidFile, { force: true })
      if (!this.#expectedToEnd) this.#fail(new StackError(`${this.name} ended by itself (${how}).${this.#lastWords()}`))
    })
  }

  /** Resolves once the launched server answers; ends it and throws when it does not. */
  async ready(): Promise<void> {
    const running = this.#running
    const ended = running?.ended ?? Promise.resolve('at once')
    const deadline = performance.now() + this.#options.startTimeoutMs
    while (!(await this.#answered())) {
      const how = await Promise.race([ended, sleep(50, null)])
      if (how !== null) throw new StackError(`${this.name} did not start (${how}).${this.#lastWords()}`)
      if (performance.now() > deadline) {
        await this.kill('SIGKILL')
        const seconds = this.#options.startTimeoutMs / 1_000
        throw new StackError(`${this.name} did not answer in ${seconds} s.${this.#lastWords()}`)
      }
    }
  }

  async #answered(): Promise<boolean> {
    try {
      return await this.#options.answers()
    } catch (error) {
      await this.kill('SIGKILL')
      throw error
    }
  }

  /** Sends `signal`; after one that ends a process at once, resolves when it has ended. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    const running = this.#running
    if (!running) return
    const ends = signal !== 'SIGSTOP' && signal !== 'SIGCONT'
    if (ends) this.#expectedToEnd = true
    running.kill(signal)
    if (ends) await running.ended
  }

  /** Asks the server to stop, waits for its grace, then kills it. Safe to call twice. */
  async stop(): Promise<void> {
    const running = this.#running
    if (!running) return
    running.kill('SIGCONT')
    const grace = new AbortController()
    const killLate = sleep(this.#options.graceSeconds * 1_000, undefined, { signal: grace.signal }).then(
      () => running.kill('SIGKILL'),
      () => {},
    )
    await this.kill(this.#options.stopSignal)
    grace.abort()
    await killLate
  }

  /** Stops it and starts it again, on the same data and port. */
  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  #lastWords(): string {
    const text = readLog(this.#options.errorLogFile) || readLog(this.#options.logFile)
    const lines = text.trim().split('\n').slice(-5).join('\n  ')
    return ` Its log is ${this.logFile}${lines ? `, and ends:\n  ${lines}` : '.'}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }
}

function readLog(path: string | undefined): string {
  if (path === undefined) return ''
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
