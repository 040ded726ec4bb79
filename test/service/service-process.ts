/** The service as a process of its own, for a test: started as in production, heard by its log. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

export interface LogLine {
  readonly level: string
  readonly msg: string
  readonly [field: string]: unknown
}

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))

/** A running service. Killed when it goes out of scope and still runs. */
export class ServiceProcess implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #exit: Promise<unknown[]>
  readonly log: LogLine[] = []
  #heard = Promise.withResolvers<void>()

  /** Starts it with nothing of this process's environment but `env`, by default with its telemetry. */
  constructor(env: Readonly<Record<string, string>>, { telemetry = true }: { telemetry?: boolean } = {}) {
    this.#child = spawn(
      process.execPath,
      [...(telemetry ? ['--import', path('../../src/service/telemetry.ts')] : []), path('../../src/service/main.ts')],
      {
        env: { PORT: '0', ADMIN_PORT: '0', PATH: process.env.PATH ?? '', ...env },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    )
    // When its output has been read too: what it said last is part of its end.
    this.#exit = once(this.#child, 'close')
    const lines = createInterface({ input: this.#child.stdout ?? process.stdin })
    lines.on('line', (line) => {
      this.log.push(JSON.parse(line))
      this.#wakeUp()
    })
    this.#child.once('close', () => this.#wakeUp())
  }

  /** The first line with this message, once it is there. Rejects when the process ends without it. */
  async line(msg: string): Promise<LogLine> {
    for (;;) {
      const { promise } = this.#heard
      const found = this.log.find((line) => line.msg.startsWith(msg))
      if (found) return found
      if (this.#ended) throw new Error(`The service ended without "${msg}":\n${JSON.stringify(this.log, null, 2)}`)
      await promise
    }
  }

  async apiUrl(): Promise<string> {
    return String((await this.line('The API listens')).url)
  }

  /** Asks the admin port. */
  async admin(route: string): Promise<{ readonly status: number; readonly body: string }> {
    const { url } = await this.line('The admin port listens')
    const response = await fetch(`${url}${route}`)
    return { status: response.status, body: await response.text() }
  }

  /** Resolves once `route` of the admin port answers with 200. */
  async ready(route = '/readyz'): Promise<void> {
    await until(async () => {
      const { status, body } = await this.admin(route)
      return { done: status === 200, last: { body, log: this.log.slice(-8) } }
    })
  }

  async send(query: string, variables: object = {}): Promise<unknown> {
    const response = await fetch(`${await this.apiUrl()}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query, variables }),
    })
    return await response.json()
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  /** Resolves to the exit code, or to the signal that ended it. */
  async exited(): Promise<unknown> {
    const [code, signal] = await this.#exit
    return code ?? signal
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#ended) this.#child.kill('SIGKILL')
    await this.#exit
  }

  get #ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null
  }

  #wakeUp(): void {
    this.#heard.resolve()
    this.#heard = Promise.withResolvers()
  }
}

/** Milliseconds between two looks from outside, and for all of them. */
const LOOK_MS = 100
const GIVE_UP_MS = 120_000

/** Looks until it is done; rejects with what was seen last. For what a process tells only when it is asked. */
export async function until(look: () => Promise<{ readonly done: boolean; readonly last: unknown }>): Promise<void> {
  const from = performance.now()
  for (;;) {
    const { done, last } = await look()
    if (done) return
    if (performance.now() - from > GIVE_UP_MS) throw new Error(`Waited in vain; seen last: ${JSON.stringify(last)}`)
    await sleep(LOOK_MS)
  }
}
