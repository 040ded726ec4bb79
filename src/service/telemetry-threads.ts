/**
 * How a worker thread's metrics reach the main thread: pushed every two seconds, and
 * once more at the end. A scrape then waits for nobody, and a thread that dies
 * loses two seconds of counts.
 */

import { randomUUID } from 'node:crypto'
import { BroadcastChannel } from 'node:worker_threads'
import { type ExportResult, ExportResultCode } from '@opentelemetry/core'
import {
  type IMetricReader,
  PeriodicExportingMetricReader,
  type PushMetricExporter,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics'
import { type MetricFamily, toFamilies } from './telemetry-merge.ts'

/** Milliseconds between two pushes. */
const PUSH_MS = 2_000

/** The channel's name. Channels of this kind stay within the process. */
export const METRICS_CHANNEL = 'graphql-outbox:metrics'

/** What a thread tells the main thread. Plain data: it is cloned on the way. */
export interface ThreadReport {
  /** The same name after a restart. */
  readonly instance: string
  /** Another one after a restart: its counters begin at 0 again. */
  readonly run: string
  readonly families: readonly MetricFamily[]
  /** Whether this was the last. */
  readonly ended: boolean
}

/** The reader of a worker thread called `instance`. */
export function createThreadReader(instance: string): IMetricReader {
  return new PeriodicExportingMetricReader({
    exporter: new ChannelExporter(instance),
    exportIntervalMillis: PUSH_MS,
    exportTimeoutMillis: PUSH_MS,
  })
}

class ChannelExporter implements PushMetricExporter {
  readonly #channel = new BroadcastChannel(METRICS_CHANNEL)
  readonly #instance: string
  readonly #run = randomUUID()
  #last: readonly MetricFamily[] = []

  constructor(instance: string) {
    this.#instance = instance
    this.#channel.unref()
  }

  export({ scopeMetrics }: ResourceMetrics, done: (result: ExportResult) => void): void {
    this.#last = toFamilies(
      scopeMetrics.flatMap(({ metrics }) => metrics),
      this.#instance,
    )
    this.#post(false)
    done({ code: ExportResultCode.SUCCESS })
  }

  async forceFlush(): Promise<void> {}

  async shutdown(): Promise<void> {
    this.#post(true)
    this.#channel.close()
  }

  #post(ended: boolean): void {
    const report: ThreadReport = { instance: this.#instance, run: this.#run, families: this.#last, ended }
    this.#channel.postMessage(report)
  }
}
