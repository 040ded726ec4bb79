/**
 * What goes wrong with telemetry itself, kept until somebody listens and said
 * once a minute at most: a collector that is away must not flood the log.
 */
import type { DiagLogger } from '@opentelemetry/api'

/** Milliseconds for which the same problem is not repeated. */
const REPEAT_AFTER_MS = 60_000
const KEPT_COUNT = 20

/** What the SDK says each time that a full queue has room again. */
const DROPPED = /^Dropped (\d+) spans/

/** Collects problems; the SDK reports to `logger`. */
export class TelemetryProblems {
  #listener: ((problem: string) => void) | null = null
  #kept: string[] = []
  readonly #reported = new Map<string, number>()
  /** Dropped spans that nobody was told of. */
  #droppedCount = 0
  #untilNextCount: NodeJS.Timeout | null = null

  /** The SDK's way in: its warnings and errors, shortened to the message. */
  readonly logger: DiagLogger = {
    error: (message) => this.report(shorten(message)),
    warn: (message) => {
      const [, count] = DROPPED.exec(message) ?? []
      if (count === undefined) this.report(shorten(message))
      else this.#countDropped(Number(count))
    },
    info: () => {},
    debug: () => {},
    verbose: () => {},
  }

  report(problem: string): void {
    const now = performance.now()
    if (now - (this.#reported.get(problem) ?? Number.NEGATIVE_INFINITY) < REPEAT_AFTER_MS) return
    if (this.#reported.size >= KEPT_COUNT) this.#reported.clear()
    this.#reported.set(problem, now)
    this.#tell(problem)
  }

  /** Gives `listener` what was kept, and all that follows. */
  listen(listener: (problem: string) => void): void {
    this.#listener = listener
    const kept = this.#kept
    this.#kept = []
    for (const problem of kept) listener(problem)
  }

  /** Each is told: the first at once, what follows in sums, once a minute. */
  #countDropped(count: number): void {
    this.#droppedCount += count
    if (this.#untilNextCount === null) this.#tellDropped()
  }

  #tellDropped(): void {
    this.#untilNextCount = null
    if (this.#droppedCount === 0) return
    this.#tell(`Telemetry: ${this.#droppedCount} spans were dropped, since the queue was full`)
    this.#droppedCount = 0
    this.#untilNextCount = setTimeout(() => this.#tellDropped(), REPEAT_AFTER_MS).unref()
  }

  #tell(problem: string): void {
    if (this.#listener) this.#listener(problem)
    else if (this.#kept.length < KEPT_COUNT) this.#kept.push(problem)
  }
}

/** The SDK reports errors as JSON with a stack; the message is enough. */
function shorten(message: string): string {
  const [, quoted] = /"message":"((?:[^"\\]|\\.)*)"/.exec(message) ?? []
  const text = quoted || message.split('\n', 1)[0] || message
  return `Telemetry: ${text === 'Timeout' ? 'the collector does not answer in time' : text.slice(0, 200)}`
}
