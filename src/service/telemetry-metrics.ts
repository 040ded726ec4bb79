/**
 * The metrics of the whole process, at one place: the main thread collects its
 * own when asked and adds what the others have pushed.
 *
 * A counter never falls: a dead thread's last counts stay, and those of its
 * successor come on top. A dead thread's gauges go, and `service.thread.up`
 * says which thread that was.
 */
import { BroadcastChannel } from 'node:worker_threads'
import { MetricReader } from '@opentelemetry/sdk-metrics'
import { type MetricFamily, mergeFamilies, toFamilies, withoutGauges } from './telemetry-merge.ts'
import { writePrometheusText } from './telemetry-prometheus.ts'
import { METRICS_CHANNEL, type ThreadReport } from './telemetry-threads.ts'

/** Milliseconds of silence after which a thread counts as dead. It pushes every two seconds. */
const SILENT_AFTER_MS = 10_000

interface ThreadState extends ThreadReport {
  readonly heardAt: number
}

/** The main thread's side. Build it before the meter provider, and give that its `reader`. */
export class MainMetrics {
  readonly reader: MetricReader = new OnDemandReader()
  readonly #instance: string
  readonly #channel = new BroadcastChannel(METRICS_CHANNEL)
  readonly #threads = new Map<string, ThreadState>()
  /** The counts of runs that are over. */
  #retired: readonly MetricFamily[] = []

  constructor(instance: string) {
    this.#instance = instance
    this.#channel.onmessage = ({ data }: { data: unknown }) => this.receive(data as ThreadReport)
    this.#channel.unref()
  }

  /** Takes in what a thread has pushed. */
  receive(report: ThreadReport): void {
    const known = this.#threads.get(report.instance)
    if (known && known.run !== report.run) this.#retired = mergeFamilies([this.#retired, withoutGauges(known.families)])
    this.#threads.set(report.instance, { ...report, heardAt: performance.now() })
  }

  /** Hears no more of other threads. */
  close(): void {
    this.#channel.close()
  }

  /** All threads' metrics as Prometheus text. */
  async collect(): Promise<string> {
    const { resourceMetrics } = await this.reader.collect()
    const own = toFamilies(
      resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics),
      this.#instance,
    )
    const threads = [...this.#threads.values()]
    const theirs = threads.map((thread) => (isAlive(thread) ? thread.families : withoutGauges(thread.families)))
    const up = threadsUp([
      [this.#instance, true],
      ...threads.map((thread) => [thread.instance, isAlive(thread)] as const),
    ])
    return writePrometheusText(mergeFamilies([own, ...theirs, this.#retired, [up]]))
  }
}

class OnDemandReader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

function isAlive({ ended, heardAt }: ThreadState): boolean {
  return !ended && performance.now() - heardAt < SILENT_AFTER_MS
}

function threadsUp(threads: readonly (readonly [instance: string, alive: boolean])[]): MetricFamily {
  return {
    name: 'service.thread.up',
    unit: '',
    description: '1 while the thread answers',
    kind: 'gauge',
    samples: threads.map(([thread, alive]) => ({ attributes: { thread }, value: alive ? 1 : 0 })),
  }
}
