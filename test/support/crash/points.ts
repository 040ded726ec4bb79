/**
 * The points of a run: moments at which a process may die. Each has a name and,
 * as it may come more than once, a number. A process that was told to die at
 * one kills itself there, so that nothing after it happens.
 */
import { openSync, writeSync } from 'node:fs'

/** `point` for the `occurrence`-th time in this process, from 1. */
export interface CrashTarget {
  readonly point: string
  readonly occurrence: number
}

export class Points {
  readonly #file: number
  readonly #target: CrashTarget | null
  readonly #met = new Map<string, number>()

  /** Writes each point to the file at `path`, one a line, before it may be the last. */
  constructor(path: string, target: CrashTarget | null) {
    this.#file = openSync(path, 'a')
    this.#target = target
  }

  meet(point: string): void {
    const occurrence = (this.#met.get(point) ?? 0) + 1
    this.#met.set(point, occurrence)
    writeSync(this.#file, `${point}\n`)
    if (this.#target?.point === point && this.#target.occurrence === occurrence) process.kill(process.pid, 'SIGKILL')
  }

  /** Runs `call` between its points. */
  async around<T>(name: string, call: () => Promise<T>): Promise<T> {
    this.meet(`${name}, before`)
    try {
      return await call()
    } finally {
      this.meet(`${name}, answered`)
    }
  }

  /** The same for what is written to a socket meanwhile: when the loop has come round, the kernel has the bytes. */
  async aroundRequest<T>(name: string, call: () => Promise<T>): Promise<T> {
    return await this.around(name, async () => {
      let answered = false
      setImmediate(() => {
        if (!answered) this.meet(`${name}, sent`)
      })
      try {
        return await call()
      } finally {
        answered = true
      }
    })
  }
}
